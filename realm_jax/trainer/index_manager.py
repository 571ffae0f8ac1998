"""Chooses the published index that each training step searches, and swaps indexes between steps.

Opening an index (verify, load) runs in a background thread, and in a separate process if loading
would hold the interpreter lock. A swap only replaces a reference. Each swap is logged as (first
training step, index step); a replay follows that log.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.artifacts.audit_log import log_swap, probe_hash_of
from realm_jax.artifacts.corpus_change import corpus_of
from realm_jax.artifacts.published_index import PublishedIndex, open_index
from realm_jax.errors import MismatchError, RealmError
from realm_jax.parallel import hosts
from realm_jax.retrieval.placement import placement
from realm_jax.storage import commit
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.storage.leases import Lease
from realm_jax.trainer.index_age import IndexAge
from realm_jax.trainer.index_wait import IndexWait
from realm_jax.trainer.index_watcher import IndexWatcher
from realm_jax.trainer.prefetch import AHEAD
from realm_jax.trainer.swap_log import SwapLog, index_step_at

log = logging.getLogger(__name__)

Offer = list[int | None]  # index step that this process has opened; index step that it refused

# An evaluation uses the index of the step before it. When `for_step(n)` is called, the training
# loop has taken batch n - AHEAD - 1 or a later one.
_RETAINED_STEPS = AHEAD + 1


def trainer_lease(run: RunDir) -> Lease:
    """The lease of this process of the trainer."""
    return Lease(run, "trainer" if hosts.is_leader() else f"trainer-{hosts.process_index()}")


class IndexManager:
    """Returns the index that each training step searches.

    For every step, in order, call `for_step`, then `offer`, exchange the offers of all processes,
    and call `accept`. Each process opens an index for itself. Process 0 proposes an index that it
    has verified, and all processes swap to it at the same step, once each has verified it. If one
    process cannot verify it, none swaps.

    Args:
      run: the run folder.
      config: the run's config.
      accepts: whether an index of a corpus with this hash may be searched; another one does not
        count as published, because its builder replaces it.
      replay: swaps that this run made before it was resumed; they are repeated.
      required: returns the index steps that checkpoints or the export still need; they are leased.
      stop: the stop signal of the job; ends a wait.
      mesh: devices over which an index of kind `mesh` is sharded.
      check: raises the error that keeps the next index from being built, if there is one.

    Attributes:
      current: the index of the newest step that `for_step` was called with.
      swaps: the swap log.
    """

    def __init__(
        self,
        run: RunDir,
        config: ConfigDict,
        accepts: Callable[[str], bool],
        replay: SwapLog,
        required: Callable[[], set[int]],
        stop: threading.Event | None = None,
        mesh: Mesh | None = None,
        check: Callable[[], None] = lambda: None,
    ):
        self.swaps: SwapLog = list(replay)
        self.current: PublishedIndex | None = None
        self._run, self._refresh = run, config.refresh
        self._expected = {"dims": config.model.embedding}
        self._accepts = accepts
        self._replay, self._required = list(replay), required
        self._mesh, self._placed = mesh, placement(config.search)
        self._lease = trainer_lease(run)
        self._renewal = contextlib.ExitStack()  # from the first opened index until `close`
        self._reported: set[int] = set()  # index steps whose refusal by a process was logged
        self._recent: dict[int, PublishedIndex] = {}  # indexes of the last few steps, by index step
        self._offered: PublishedIndex | None = None
        self._accepted: PublishedIndex | None = None  # swapped in by the next `for_step`
        self._age = IndexAge(run, config.refresh)
        self._probe_candidates: dict[int, str] = {}  # hash of hits, by index step
        self._closed, job_stop = threading.Event(), stop or threading.Event()
        poll = config.builder.poll_seconds
        self._watcher = IndexWatcher(run, self._opened, config.refresh, poll, self._closed)
        self._wait = IndexWait(
            run,
            config.refresh,
            poll,
            lambda: self._closed.is_set() or job_stop.is_set(),
            self._closed.wait,
            check,
        )

    def for_step(self, step: int) -> PublishedIndex:
        """The index that training step `step` searches; swaps first if a swap is due.

        Raises:
          WaitInterrupted: stopped while no suitable index was published.
          RealmError: no suitable index was published in time, or one cannot be opened.
        """
        due = self._due(step)
        if due is not None:
            self.current = due
            self._probe(due)
            failpoint("index.swapped")
            if [index for first, index in self.swaps if first <= step][-1:] != [due.step]:
                self._log_swap(step, due)
        assert self.current is not None
        self._retain_recent(step, self.current)
        self._age.warn_if_stale(step, self.current.step)
        if self._refresh.mode != "sync" and not self._replay:
            self._watcher.start(self.current.step)
        return self.current

    def offer(self, step: int) -> Offer:
        """What this process has opened for training step `step`; goes through JSON."""
        ready = self._watcher.ready()
        if ready is not None and ready.step > step and not self._needs_newer(step):
            ready = None  # published before the run was killed
        self._offered = ready
        return [None if ready is None else ready.step, self._watcher.refused]

    def accept(self, offers: list[Offer]) -> None:
        """Decides from the offers of all processes whether the next step swaps, and to what."""
        self._report_refusals(offers)
        proposed = self._watcher.proposed = offers[0][0]
        if self._offered is not None and self._offered.step in self._reported:
            self._watcher.drop(self._offered)  # another process has refused it, perhaps earlier
        elif proposed is not None and all(opened == proposed for opened, _ in offers):
            self._watcher.drop(self._offered)
            self._accepted = self._offered

    def searched_at(self, step: int) -> PublishedIndex | None:
        """The index that training step `step` searched; None before the first step.

        Only the indexes of the steps that an evaluation can ask for are kept.
        """
        return self._recent[index_step_at(self.swaps, step)] if self._recent else None

    def wait_for(self, index_step: int) -> PublishedIndex:
        """Waits for the index of the snapshot of `index_step` and makes it the current one."""
        self.current = self._open(index_step, index_step)
        return self.current

    def age(self, step: int) -> dict[str, Any]:
        """The age of the index that `step` searched (`IndexAge.of`); {} before the first index."""
        past = [index for first, index in self.swaps if first <= step]
        return self._age.of(past[-1], step) if past else {}

    def _retain_recent(self, step: int, index: PublishedIndex) -> None:
        steps = range(step - _RETAINED_STEPS, step + 1)
        past = {s: [index for first, index in self.swaps if first <= s] for s in steps}
        needed = {indexes[-1] for indexes in past.values() if indexes}
        known = {**self._recent, index.step: index}
        self._recent = {one: known[one] for one in needed & known.keys()}

    def _log_swap(self, step: int, index: PublishedIndex) -> None:
        self.swaps.append((step, index.step))
        log.info("step %d: index of step %d in use", step, index.step)
        if hosts.is_leader():
            log_swap(self._run, step, index, self._probe_candidates[index.step])

    def _due(self, step: int) -> PublishedIndex | None:
        """The index to swap to before `step`; None keeps the current one."""
        if self._refresh.mode == "sync":  # the boundaries follow from the step: no log is needed
            boundary = step - step % self._refresh.every
            is_current = self.current is not None and self.current.step == boundary
            return None if is_current else self._of_snapshot(boundary, step)
        if self._replay:
            return self._replayed(step)
        return self._first(step) if self.current is None else self._fresh_enough(step)

    def _of_snapshot(self, boundary: int, step: int) -> PublishedIndex:
        newer = self._newer_than_deleted(boundary, step)
        if newer is not None:
            raise RealmError(
                "the index that this step must search was deleted or is of an earlier corpus, and "
                "builders only build the newest snapshot",
                where=self._run.published_index,
                expected=f"the index of step {boundary} (config.refresh.mode is sync)",
                found=f"newer ones, up to step {newer}",
                fix="continue with --config.refresh.mode=async, or start again in a new --workdir",
            )
        return self._open(boundary, step)

    def _newer_than_deleted(self, index_step: int, step: int) -> int | None:
        """The newest index step, if it is newer than `index_step` and that index does not exist.

        Process 0 looks for all processes: some then wait for the index, or none does.
        """

        def look() -> int | None:
            newest = commit.latest(self._run.published_index)
            newer = newest is not None and newest > index_step and self._is_published(newest)
            return newest if newer and not self._is_published(index_step) else None

        return hosts.agreed("index deleted", step, look)

    def _is_published(self, index_step: int) -> bool:
        found = corpus_of(self._run.published_index / step_name(index_step))
        return found is not None and self._accepts(found)

    def _first(self, step: int) -> PublishedIndex:
        """The newest index that suits `step`; process 0 chooses it for all processes."""

        def newest() -> int | None:
            found = self._newest_at(step) if hosts.is_leader() else None
            return None if found is None or self._is_too_old(found, step) else found

        found = self._wait.until(step, "of any step", newest, lambda findings: findings[0])
        return self._open(found, step)

    def _newest_at(self, step: int) -> int | None:
        """The newest published index step up to `step`; the oldest later one if all are too old.

        A resumed run finds indexes of steps that it has not yet repeated, and does not search them
        unless retention has deleted all others, or they are older than `refresh.max_staleness`.
        """
        newest = commit.latest(self._run.published_index)
        if newest is not None and newest > step:
            found = [s for s in commit.steps(self._run.published_index) if self._is_published(s)]
            found = [s for s in found if not self._is_too_old(s, step)]
            newest = max((s for s in found if s <= step), default=min(found, default=newest))
        return newest if newest is not None and self._is_published(newest) else None

    def _fresh_enough(self, step: int) -> PublishedIndex | None:
        """The accepted index, if any; waits for a newer one if the current one is too old."""
        assert self.current is not None
        accepted, self._accepted = self._accepted, None
        next_step = self.current.step if accepted is None else accepted.step
        if not self._is_too_old(next_step, step):
            return accepted

        def choose(offers: list[Offer]) -> PublishedIndex | None:
            self.accept(offers)
            chosen, self._accepted = self._accepted, None
            return None if chosen is None or self._is_too_old(chosen.step, step) else chosen

        wanted = f"of step {step - self._refresh.max_staleness} or newer"
        return self._wait.until(step, wanted, lambda: self.offer(step), choose)

    def _needs_newer(self, step: int) -> bool:
        """Whether the current index is too old for `step`.

        Then an index of a later step is used: builders only build the newest snapshot, so none of
        an earlier step would follow.
        """
        return self.current is not None and self._is_too_old(self.current.step, step)

    def _is_too_old(self, index_step: int, step: int) -> bool:
        return 0 < self._refresh.max_staleness < step - index_step

    def _report_refusals(self, offers: list[Offer]) -> None:
        refused_by = {refused: process for process, (_, refused) in enumerate(offers)}
        for refused in refused_by.keys() - self._reported - {None}:
            assert refused is not None
            self._reported.add(refused)
            log.warning(
                "index of step %d: process %d of %d could not verify it, so none swaps to it",
                refused,
                refused_by[refused],
                len(offers),
            )

    def _replayed(self, step: int) -> PublishedIndex | None:
        """The index that the replay gives `step`; after its last swap, new indexes are used."""
        past = [swap for swap in self._replay if swap[0] <= step]
        if len(past) == len(self._replay):
            self._replay = []
        if not past or (self.current is not None and past[-1][1] == self.current.step):
            return None if past else self._first(step)
        wanted = past[-1][1]
        newer = self._newer_than_deleted(wanted, step)
        if newer is not None:
            log.warning(
                "the index of step %d, which this run searched from step %d on, was deleted: using "
                "a newer one, so the steps since then are not repeated bit for bit",
                wanted,
                past[-1][0],
            )
            self._replay = []
            self.swaps[:] = [swap for swap in self.swaps if swap[0] < step]
            return self._first(step)
        return self._open(wanted, step)

    def _open(self, index_step: int, step: int) -> PublishedIndex:
        """Waits until all processes see the index of `index_step`; opens it."""
        self._wait.until(
            step,
            f"of step {index_step}",
            lambda: self._is_published(index_step),
            lambda found: True if all(found) else None,
        )
        return self._opened(index_step)

    def _opened(self, index_step: int) -> PublishedIndex:
        # Batches are prefetched: a checkpoint of the index before this one may still be written.
        in_use = {index for _, index in self.swaps[-3:]}
        in_use |= {self.current.step} if self.current is not None else set()
        if not self._lease.held:
            self._renewal.enter_context(self._lease.renewed())  # also while the main thread waits
        self._lease.hold({PUBLISHED_INDEX: self._required() | in_use | {index_step}})
        folder = self._run.published_index / step_name(index_step)
        failpoint("index.leased")
        opened = open_index(folder, self._expected, self._mesh, *self._placed)
        if not self._accepts(opened.manifest["corpus_hash"]):
            raise MismatchError(
                "index has another corpus_hash",
                where=folder,
                expected="a generation of the knowledge corpus of this run",
                found=f"corpus_hash {opened.manifest['corpus_hash']}",
                fix="build the index from this run's snapshots and corpus",
            )
        if opened.searcher.kind not in ("mesh", "spread"):
            self._probe(opened)  # in the background, so that no swap waits for it
        self._age.opened(opened.manifest)
        return opened

    def _probe(self, index: PublishedIndex) -> None:
        """Searches the index with the probe queries.

        Kinds that all processes search together are probed at the swap: at the same step in each.
        """
        if index.step not in self._probe_candidates:
            self._probe_candidates[index.step] = probe_hash_of(index)

    def close(self) -> None:
        """Stops watching. The lease stays until it expires, so a resumed run finds its index."""
        self._closed.set()
        self._watcher.close()
        self._renewal.close()
