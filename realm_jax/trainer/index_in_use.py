"""The published index that each step searches: opened beside the training, swapped between steps.

Opening (verify, load) happens in a thread of its own; a swap is the exchange of one reference.
Every swap is logged as (first step, index step), and a replay follows that log.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.errors import DamageError, MismatchError, RealmError
from realm_jax.exchange import commit
from realm_jax.exchange.commit import NotPublishedError
from realm_jax.exchange.follow import follow
from realm_jax.exchange.heartbeat import last_beat
from realm_jax.exchange.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.exchange.leases import SECONDS, Lease
from realm_jax.exchange.logs import Log
from realm_jax.exchange.published_index import PublishedIndex, open_index
from realm_jax.failpoints import reach
from realm_jax.parallel import hosts

log = logging.getLogger(__name__)

SwapLog = list[tuple[int, int]]  # (first training step, index step), ascending


class NoLongerWaiting(RealmError):
    """The stop signal came before the index did."""


class IndexInUse:
    """Answers which index step n searches; `for_step` is called once per step, in order.

    Args:
      run: the run folder.
      config: the run's config.
      corpus_hash: of the knowledge corpus; an index of another corpus is refused.
      replay: swaps of an earlier life of this run, which this one repeats.
      kept: index steps that checkpoints may still ask for; retention must leave them.
      stop: ends the waiting for an index, like `close`.
      mesh: where an index of kind mesh spreads its rows.

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
    ):
        self.swaps: SwapLog = list(replay)
        self._told: set[int] = set()  # refusals that this process has told of
        self._run, self._refresh, self._poll = run, config.refresh, config.builder.poll_seconds
        self._expect = {"corpus_hash": corpus_hash, "dims": config.model.embedding}
        self._replay, self._kept = list(replay), kept
        self._lease = Lease(run, "trainer" if hosts.leads() else f"trainer-{hosts.me()}")
        self._mesh = mesh
        self._renewed = 0.0
        self.current: PublishedIndex | None = None
        self._fresh: PublishedIndex | None = None  # verified, not yet in use
        self._refused: int | None = None  # the newest that could not be verified
        self._asked: int | None = None  # what process 0 offers
        self._log = Log(run.swaps)
        self._stop = threading.Event()  # of this object
        self._job_stop = stop or threading.Event()
        self._watcher: threading.Thread | None = None

    def for_step(self, step: int) -> PublishedIndex:
        """The index of `step`, after a swap if one is due."""
        wanted = self._due(step)
        if wanted is not None and (self.current is None or wanted.step != self.current.step):
            self.current = wanted
            reach("index.swapped")
            if [index for first, index in self.swaps if first <= step][-1:] != [wanted.step]:
                self._log_swap(step, wanted.step)
        assert self.current is not None
        if self._watcher is None and self._refresh.mode == "async" and not self._replay:
            self._watch(self.current.step)
        self._renew()
        return self.current

    def of(self, index_step: int) -> PublishedIndex:
        """Waits for the index of the snapshot of `index_step` and puts it in use."""
        self.current = self._open(index_step)
        return self.current

    def _log_swap(self, step: int, index_step: int) -> None:
        self.swaps.append((step, index_step))
        log.info("step %d: index of step %d in use", step, index_step)
        if hosts.leads():
            record = {"step": step, "index_step": index_step, "time": time.time()}
            self._log.append(record)

    def _due(self, step: int) -> PublishedIndex | None:
        """What to swap in before `step`; None keeps what is in use."""
        if self._refresh.mode == "sync":  # the same in every life, without a log
            boundary = step - step % self._refresh.every
            behind = self.current is None or self.current.step != boundary
            return self._open(boundary) if behind else None
        if self._replay:
            return self._replayed(step)
        return self._first(step) if self.current is None else self._agreed(step)

    def _first(self, step: int) -> PublishedIndex:
        """Any index, the same for all processes."""
        found = None
        try:
            found = self._await(None) if hosts.leads() else None
        finally:
            found = hosts.agree("first index", step, found)[0]
        if found is None:
            raise NoLongerWaiting("process 0 was stopped", where=self._run.published_index)
        return self._opened(found)

    def _agreed(self, step: int) -> PublishedIndex | None:
        """What to swap to, once every process has verified it."""
        ready = self._fresh
        said = hosts.agree("index", step, [ready and ready.step, self._refused])
        refusals = {refused: process for process, (_, refused) in enumerate(said)}
        offer = self._asked = said[0][0]
        for refused in refusals.keys() - self._told - {None}:
            self._told.add(refused)
            log.warning(
                "index of step %d: process %d of %d could not verify it, so none swaps to it",
                refused,
                refusals[refused],
                len(said),
            )
        if offer in self._told:
            self._fresh = None
        elif offer is not None and all(verified == offer for verified, _ in said):
            self._fresh = None
            return ready
        return None

    def _replayed(self, step: int) -> PublishedIndex | None:
        """Follows the swap log; past its last entry the run is on its own again."""
        past = [swap for swap in self._replay if swap[0] <= step]
        if len(past) == len(self._replay):
            self._replay = []
        if not past or (self.current is not None and past[-1][1] == self.current.step):
            return None if past else self._first(step)
        wanted, newest = past[-1][1], commit.latest(self._run.published_index)
        folder = self._run.published_index / step_name(wanted)
        if newest is not None and newest > wanted and not commit.is_published(folder):
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

    def _await(self, index_step: int | None) -> int:
        """The step of that index (None: of any), once it is published."""
        waited, told = 0.0, False
        while not (self._stop.is_set() or self._job_stop.is_set()):
            newest = commit.latest(self._run.published_index)
            found = newest if index_step is None else index_step
            folder = None if found is None else self._run.published_index / step_name(found)
            if folder is not None and found is not None and commit.is_published(folder):
                return found
            if not told and waited > 2.0:
                log.info("waiting for the index %s", self._named(index_step))
                told = True
            if waited > self._refresh.wait_seconds:
                raise self._no_index(index_step)
            self._stop.wait(self._poll)
            waited += self._poll
        raise NoLongerWaiting("stopped while waiting for an index", where=self._run.published_index)

    def _named(self, index_step: int | None) -> str:
        return "of any step" if index_step is None else f"of step {index_step}"

    def _no_index(self, index_step: int | None) -> RealmError:
        beat = last_beat(self._run, "index_builder")
        state = "it never gave a sign of life"
        if beat is not None:
            state = f"its last sign of life is {time.time() - beat['time']:.0f} s old: {beat}"
        return RealmError(
            "no index was published in time",
            where=self._run.published_index,
            expected=f"an index {self._named(index_step)} within "
            f"{self._refresh.wait_seconds:.0f} s (config.refresh.wait_seconds)",
            found=f"none; of the index builder: {state}",
            fix=f"start it: realm index --workdir={self._run.workdir}",
        )

    def _opened(self, index_step: int) -> PublishedIndex:
        # The feed runs ahead: a checkpoint may still be written for the index before this one.
        in_use = {index for _, index in self.swaps[-3:]}
        in_use |= {self.current.step} if self.current is not None else set()
        self._lease.hold({PUBLISHED_INDEX: self._kept() | in_use | {index_step}})
        folder = self._run.published_index / step_name(index_step)
        reach("index.leased")
        return open_index(folder, self._expect, self._mesh)

    def _watch(self, after: int) -> None:
        self._watcher = threading.Thread(
            target=self._follow, args=(after,), name="index watcher", daemon=True
        )
        self._watcher.start()

    def _follow(self, after: int) -> None:
        for index_step in self._news(after) if hosts.leads() else self._offers():
            try:
                self._fresh = self._opened(index_step)
            except (DamageError, MismatchError, NotPublishedError) as error:
                self._refused = index_step
                log.warning("index of step %d refused, the old one stays:\n%s", index_step, error)
            while hosts.count() > 1 and self._fresh is not None and not self._stop.is_set():
                self._stop.wait(self._poll)  # what is offered stands until all have answered

    def _news(self, after: int) -> Iterator[int]:
        return follow(
            self._run.published_index,
            after,
            poll_seconds=self._poll,
            stop=self._stop,
            ended=lambda: False,
        )

    def _offers(self) -> Iterator[int]:
        """What process 0 has verified, for this process to verify too."""
        last = None
        while not self._stop.is_set():
            if self._asked not in (None, last):
                last = self._asked
                yield last
            self._stop.wait(self._poll)

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > SECONDS / 10:
            self._lease.renew()
            self._renewed = time.monotonic()

    def close(self) -> None:
        """Stops watching; the lease stays until it expires, for a resumed run to find its index."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(timeout=60)


def index_step_at(swaps: SwapLog, step: int) -> int:
    """The index step that training step `step` used."""
    return [index for first, index in swaps if first <= step][-1]


def staleness(swaps: SwapLog, steps: int) -> dict[str, float]:
    """Mean and largest (training step - index step) over steps 0 .. steps - 1."""
    ages = [step - index_step_at(swaps, step) for step in range(steps)] or [0]
    return {"mean": sum(ages) / len(ages), "max": float(max(ages))}
