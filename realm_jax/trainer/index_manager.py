"""The published index that each step searches: opened beside the training, swapped between steps.

Opening (verify, load) happens in a thread of its own, and where loading would hold up all threads
in a process of its own; a swap is the exchange of one reference.
Every swap is logged as (first step, index step), and a replay follows that log.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.artifacts.audit_log import candidates_of, note_swap
from realm_jax.artifacts.published_index import PublishedIndex, open_index
from realm_jax.errors import RealmError
from realm_jax.parallel import hosts
from realm_jax.retrieval.search_process import load_apart
from realm_jax.storage import commit
from realm_jax.storage.failpoints import reach
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.storage.leases import SECONDS, Lease
from realm_jax.trainer.index_watcher import IndexWatcher
from realm_jax.trainer.swap_log import SwapLog

log = logging.getLogger(__name__)

_SOON = 2.0  # seconds of waiting that are not worth a word


class WaitInterrupted(RealmError):
    """The stop signal came before the index did."""


class IndexManager:
    """Answers which index step n searches; `for_step` is called once per step, in order.

    Args:
      run: the run folder.
      config: the run's config.
      corpus_hash: of the knowledge corpus; an index of another corpus is refused.
      replay: swaps of an earlier life of this run, which this one repeats.
      kept: index steps that checkpoints may still ask for; retention must leave them.
      stop: ends the waiting for an index, like `close`.
      mesh: where an index of kind mesh spreads its rows.
      check: asked while an index is waited for; raises what keeps it from ever coming.

    Of several processes each opens the index for itself. Process 0 offers what it has verified, and
    all swap at the first step at which every one has verified it; if one cannot, none swaps.
    """

    def __init__(
        self,
        run: RunDir,
        config: ConfigDict,
        corpus_hash: str,
        replay: SwapLog,
        kept: Callable[[], set[int]],
        stop: threading.Event | None = None,
        mesh: Mesh | None = None,
        check: Callable[[], None] = lambda: None,
    ):
        self.swaps: SwapLog = list(replay)
        self._told: set[int] = set()  # refusals that this process has told of
        self._run, self._refresh, self._poll = run, config.refresh, config.builder.poll_seconds
        self._expect = {"corpus_hash": corpus_hash, "dims": config.model.embedding}
        self._replay, self._kept = list(replay), kept
        self._lease = Lease(run, "trainer" if hosts.is_leader() else f"trainer-{hosts.process_index()}")
        self._mesh, self._check = mesh, check
        self._renewed = 0.0
        self._warned_of: int | None = None  # index step
        self.current: PublishedIndex | None = None
        self._taken: dict[int, float] = {}  # index step -> when its snapshot was taken
        self._found: dict[int, str] = {}  # index step -> what it gives to the probe queries
        self._stop = threading.Event()  # of this object
        self._job_stop = stop or threading.Event()
        self._watcher = IndexWatcher(run, self._opened, config.refresh, self._poll, self._stop)

    def for_step(self, step: int) -> PublishedIndex:
        """The index of `step`, after a swap if one is due."""
        wanted = self._due(step)
        if wanted is not None and (self.current is None or wanted.step != self.current.step):
            self.current = wanted
            self._look_up(wanted)
            reach("index.swapped")
            if [index for first, index in self.swaps if first <= step][-1:] != [wanted.step]:
                self._log_swap(step, wanted)
        assert self.current is not None
        self._warn_if_stale(step, self.current.step)
        if self._refresh.mode == "async" and not self._replay:
            self._watcher.start(self.current.step)
        self._renew()
        return self.current

    def of(self, index_step: int) -> PublishedIndex:
        """Waits for the index of the snapshot of `index_step` and puts it in use."""
        self.current = self._open(index_step)
        return self.current

    def age(self, step: int) -> dict[str, Any]:
        """Which index `step` searched, and how old it was then, in steps and in seconds until now.

        {} before the first index.
        """
        past = [index for first, index in self.swaps if first <= step]
        if not past:
            return {}
        found: dict[str, Any] = {"index_step": past[-1], "staleness_steps": step - past[-1]}
        taken = self._taken.get(past[-1])
        return found if taken is None else {**found, "index_age_s": time.time() - taken}

    def _log_swap(self, step: int, index: PublishedIndex) -> None:
        self.swaps.append((step, index.step))
        log.info("step %d: index of step %d in use", step, index.step)
        if hosts.is_leader():
            note_swap(self._run, step, index, self._found[index.step])

    def _warn_if_stale(self, step: int, index_step: int) -> None:
        """Once for each index: a builder that has fallen behind is behind at every step."""
        if step - index_step <= self._refresh.alarm_steps or self._warned_of == index_step:
            return
        self._warned_of = index_step
        log.warning(
            "step %d searches the index of step %d, which is %d steps old, more than %d "
            "(config.refresh.alarm_steps); of the index builder: %s; see that it runs (%s), or "
            "give it more devices",
            step,
            index_step,
            step - index_step,
            self._refresh.alarm_steps,
            self._builder_state(),
            self._how_to_start(),
        )

    def _due(self, step: int) -> PublishedIndex | None:
        """What to swap in before `step`; None keeps what is in use."""
        if self._refresh.mode == "sync":  # the same in every life, without a log
            boundary = step - step % self._refresh.every
            behind = self.current is None or self.current.step != boundary
            return self._of_snapshot(boundary) if behind else None
        if self._replay:
            return self._replayed(step)
        return self._first(step) if self.current is None else self._fresh_enough(step)

    def _of_snapshot(self, boundary: int) -> PublishedIndex:
        newer = self._newer_than_gone(boundary)
        if newer is not None:
            raise RealmError(
                "the index that this step must search is gone, and builders make none of the past",
                where=self._run.published_index,
                expected=f"the index of step {boundary} (config.refresh.mode is sync)",
                found=f"newer ones, up to step {newer}",
                fix="go on with --config.refresh.mode=async, or begin again in a new --workdir",
            )
        return self._open(boundary)

    def _newer_than_gone(self, index_step: int) -> int | None:
        """The newest index, if the one of that step was published before it and is no more."""
        newest = commit.latest(self._run.published_index)
        folder = self._run.published_index / step_name(index_step)
        gone = newest is not None and newest > index_step and not commit.is_published(folder)
        return newest if gone else None

    def _first(self, step: int) -> PublishedIndex:
        """Any index that is good for `step`, the same for all processes."""
        found = None
        try:
            found = self._await(None, step) if hosts.is_leader() else None
        finally:
            found = hosts.all_gather("first index", step, found)[0]
        if found is None:
            raise WaitInterrupted("process 0 was stopped", where=self._run.published_index)
        return self._opened(found)

    def _fresh_enough(self, step: int) -> PublishedIndex | None:
        """What to swap to, if any; waits for it where what is in use is too old for `step`."""
        assert self.current is not None
        found, asked = self._agreed(step, "index"), 0
        while found is None and self._too_old(self.current.step, step):
            asked += 1
            self._wait_for_newer(step, asked)
            found = self._agreed(step, f"index, asked {asked} times more")
        return found

    def _too_old(self, index_step: int, step: int) -> bool:
        return 0 < self._refresh.most_stale < step - index_step

    def _wait_for_newer(self, step: int, asked: int) -> None:
        """A moment; all processes together, or one would be left alone with the next question."""
        waited = asked * self._poll
        mine = [self._job_stop.is_set() or self._stop.is_set(), waited > self._refresh.wait_seconds]
        said = hosts.all_gather(f"waited {asked} times", step, mine)
        if any(stopped for stopped, _ in said):
            raise WaitInterrupted("a newer index never came", where=self._run.published_index)
        if any(late for _, late in said):
            raise self._no_index(step - self._refresh.most_stale, "or newer ")
        if waited - self._poll <= _SOON < waited:
            log.info("step %d waits for a newer index (config.refresh.most_stale)", step)
        self._check()
        self._stop.wait(self._poll)

    def _agreed(self, step: int, topic: str) -> PublishedIndex | None:
        """What to swap to, once every process has verified it."""
        ready = self._watcher.ready()
        if ready is not None and ready.step > step:  # of this run's own future, before a kill
            ready = None
        said = hosts.all_gather(topic, step, [ready and ready.step, self._watcher.refused])
        refusals = {refused: process for process, (_, refused) in enumerate(said)}
        offer = self._watcher.asked = said[0][0]
        for refused in refusals.keys() - self._told - {None}:
            self._told.add(refused)
            log.warning(
                "index of step %d: process %d of %d could not verify it, so none swaps to it",
                refused,
                refusals[refused],
                len(said),
            )
        if offer in self._told:
            self._watcher.take(ready)
        elif offer is not None and all(verified == offer for verified, _ in said):
            self._watcher.take(ready)
            return ready
        return None

    def _replayed(self, step: int) -> PublishedIndex | None:
        """Follows the swap log; past its last entry the run is on its own again."""
        past = [swap for swap in self._replay if swap[0] <= step]
        if len(past) == len(self._replay):
            self._replay = []
        if not past or (self.current is not None and past[-1][1] == self.current.step):
            return None if past else self._first(step)
        wanted = past[-1][1]
        if self._newer_than_gone(wanted) is not None:
            log.warning(
                "the index of step %d, which this run used from step %d on, is gone: going on with "
                "a newer one, so these steps will not repeat bit for bit",
                wanted,
                past[-1][0],
            )
            self._replay = []
            return self._first(step)
        return self._open(wanted)

    def _open(self, index_step: int) -> PublishedIndex:
        """Waits for the index of a step to be published, and opens it."""
        return self._opened(self._await(index_step))

    def _await(self, index_step: int | None, step: int = 0) -> int:
        """The step of that index (None: any good for `step`), once it is published."""
        waited, told = 0.0, False
        while not (self._stop.is_set() or self._job_stop.is_set()):
            found = self._newest_at(step) if index_step is None else index_step
            if index_step is None and found is not None and self._too_old(found, step):
                found = None
            folder = None if found is None else self._run.published_index / step_name(found)
            if folder is not None and found is not None and commit.is_published(folder):
                return found
            if not told and waited > _SOON:
                named = self._named(index_step)
                log.info("waiting for the index %s; %s builds it", named, self._how_to_start())
                told = True
            if waited > self._refresh.wait_seconds:
                raise self._no_index(index_step)
            self._check()
            self._stop.wait(self._poll)
            waited += self._poll
        raise WaitInterrupted("stopped while waiting for an index", where=self._run.published_index)

    def _newest_at(self, step: int) -> int | None:
        """A run that was killed finds indexes of steps it has yet to do again: none of those,
        unless retention has left nothing else."""
        newest = commit.latest(self._run.published_index)
        if newest is None or newest <= step:
            return newest
        published = commit.steps(self._run.published_index)
        return max((one for one in published if one <= step), default=published[0])

    def _named(self, index_step: int | None) -> str:
        return "of any step" if index_step is None else f"of step {index_step}"

    def _no_index(self, index_step: int | None, newer: str = "") -> RealmError:
        return RealmError(
            "no index was published in time",
            where=self._run.published_index,
            expected=f"an index {self._named(index_step)} {newer}within "
            f"{self._refresh.wait_seconds:.0f} s (config.refresh.wait_seconds)",
            found=f"none; of the index builder: {self._builder_state()}",
            fix=f"start it: {self._how_to_start()}",
        )

    def _builder_state(self) -> str:
        beat = last_beat(self._run, "index_builder")
        if beat is None:
            return "it never gave a sign of life"
        return f"its last sign of life is {max(time.time() - beat['time'], 0.0):.0f} s old: {beat}"

    def _how_to_start(self) -> str:
        return f"realm index --workdir={self._run.workdir}"

    def _opened(self, index_step: int) -> PublishedIndex:
        # The feed runs ahead: a checkpoint may still be written for the index before this one.
        in_use = {index for _, index in self.swaps[-3:]}
        in_use |= {self.current.step} if self.current is not None else set()
        self._lease.hold({PUBLISHED_INDEX: self._kept() | in_use | {index_step}})
        folder = self._run.published_index / step_name(index_step)
        reach("index.leased")
        opened = open_index(folder, self._expect, self._mesh, load_apart)
        if opened.searcher.kind != "mesh":
            self._look_up(opened)  # here, so that no swap waits for it
        taken = opened.manifest.get("snapshot_time")  # which older versions do not record
        if taken is not None:
            self._taken[index_step] = taken
        return opened

    def _look_up(self, index: PublishedIndex) -> None:
        """What the index gives to the probe queries.

        A mesh searcher's program runs on all devices, so it may start at a swap only, where all
        processes are at the same step: they must start such programs in one order.
        """
        if index.step not in self._found:
            self._found[index.step] = candidates_of(index)

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > SECONDS / 10:
            self._lease.renew()
            self._renewed = time.monotonic()

    def close(self) -> None:
        """Stops watching; the lease stays until it expires, for a resumed run to find its index."""
        self._stop.set()
        self._watcher.close()
