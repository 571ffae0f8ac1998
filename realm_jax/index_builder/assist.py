"""Workers 1 to n - 1: each works on the newest work order until the run has ended.

If the index has one segment, a worker embeds its shards of it; otherwise it makes its segments.
"""

import logging
import threading
import time
from collections.abc import Callable

from ml_collections import ConfigDict

from realm_jax.artifacts.corpus_change import has_index, has_usable_index
from realm_jax.artifacts.run_config import NO_PATHS, Paths, newest_config, open_knowledge
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import MismatchError, Stopped
from realm_jax.index_builder.built_segments import segment_bounds
from realm_jax.index_builder.passage_embedder import PassageEmbedder
from realm_jax.index_builder.refresh_config import SettingsCheck, refresh_config
from realm_jax.index_builder.segment_maker import SegmentMaker
from realm_jax.index_builder.shards import ShardFiles
from realm_jax.index_builder.work_order import WorkOrder, newest_order
from realm_jax.index_builder.worker import Worker
from realm_jax.storage import commit, heartbeat
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import SNAPSHOTS, RunDir, step_name
from realm_jax.storage.leases import Lease

# A work order with another number of workers may be of an earlier start: worker 0 replaces it when
# it starts too.
ORDER_SECONDS = 120.0
_CHECK_SECONDS = 60.0  # between two checks, while shards are embedded, for a newer work order

log = logging.getLogger(__name__)


def assist(
    run: RunDir,
    worker: Worker,
    poll_seconds: float,
    stop: threading.Event,
    lease: Lease,
    ended: Callable[[], bool],
    paths: Paths = NO_PATHS,
) -> None:
    """Does this worker's share of each work order until the last index is published.

    Args:
      run: the run folder.
      worker: not worker 0.
      poll_seconds: time between two checks for new work.
      stop: ends the wait, and the work after a shard.
      lease: holds the snapshot in use.
      ended: whether the run has ended.
      paths: see `run_config`.

    Raises:
      MismatchError: the newest work order has another number of workers or another corpus.
      RealmError: the recall of a segment is below the floor.
    """
    log.info("%s waits for work orders of worker 0/%d", worker.name, worker.count)
    heartbeat.beat(run, worker.name, state="waiting")
    share: _Share | _Segments | _OtherSettings | None = None
    began = time.monotonic()
    while not stop.is_set():
        over = ended()  # before the order: the last one must not be missed
        order = newest_order(run)
        if order is not None and order.workers != worker.count:
            _refuse_after(began + ORDER_SECONDS, run, worker, order)
        elif order is not None:
            if share is None or share.order != order:
                share = _open_share(run, worker, order, lease, paths)
            if share is not None and share.work(stop):
                continue
        if over and _last_is_published(run, paths):
            break
        stop.wait(poll_seconds)
    heartbeat.beat(run, worker.name, state="stopped")


class _Share:
    """This worker's shards of one work order.

    Args:
      run: the run folder.
      worker: this worker.
      order: the work order.
      config: of the snapshot.
      embedder: of the snapshot.
    """

    def __init__(
        self,
        run: RunDir,
        worker: Worker,
        order: WorkOrder,
        config: ConfigDict,
        embedder: PassageEmbedder,
    ):
        self.order, self._run, self._worker, self._embedder = order, run, worker, embedder
        folder, dims = run.shards(order.step), config.model.embedding
        self._files = ShardFiles(folder, dims, order.corpus_hash)
        self._starts = worker.starts(len(embedder.ids), order.shard)
        log.info("work order of step %d: %d shards", order.step, len(self._starts))

    def work(self, stop: threading.Event) -> bool:
        """Embeds missing shards for `_CHECK_SECONDS`; returns whether there were any."""
        stored = self._files.stored()
        missing = [start for start in self._starts if start not in stored]
        if not missing or has_index(self._run, self.order.step, self.order.corpus_hash):
            return False
        log.info("embedding %d of %d shards", len(missing), len(self._starts))
        until = time.monotonic() + _CHECK_SECONDS
        for number, start in enumerate(missing):
            self._beat("embedding", (len(self._starts) - len(missing) + number) * self.order.shard)
            vectors = self._embedder.embed(self._embedder.ids[start : start + self.order.shard])
            self._files.write(start, vectors)
            if stop.is_set() or time.monotonic() >= until:
                return True
        self._beat("waiting", self._total())
        return True

    def _total(self) -> int:
        size, shard = len(self._embedder.ids), self.order.shard
        return sum(min(shard, size - start) for start in self._starts)

    def _beat(self, state: str, done: int) -> None:
        _beat(self._run, self._worker, self.order, state, done, self._total())


class _Replaced(Exception):
    """A newer work order was written."""


class _Segments:
    """This worker's segments of one work order.

    Args:
      run: the run folder.
      worker: this worker.
      order: the work order.
      maker: makes the segments.
    """

    def __init__(self, run: RunDir, worker: Worker, order: WorkOrder, maker: SegmentMaker):
        self.order, self._run, self._worker, self._maker = order, run, worker, maker
        of_worker = worker.starts(len(maker.bounds), 1)
        self._own = [number for number in maker.numbers if number in of_worker]
        self._total = sum(map(maker.size, self._own))
        log.info("work order of step %d: %d segments", order.step, len(self._own))

    def work(self, stop: threading.Event) -> bool:
        """Makes a missing segment, unless a newer order arrives; returns whether there was one."""
        missing = self._maker.unfinished(self._own)
        if not missing or has_index(self._run, self.order.step, self.order.corpus_hash):
            return False
        before = self._total - sum(map(self._maker.size, missing))

        def progress(done: int) -> None:
            self._beat("embedding", before + done)
            if newest_order(self._run) != self.order:
                raise _Replaced

        try:
            self._maker.make(missing[0], stop, progress)
        except (Stopped, _Replaced):
            return True
        if len(missing) == 1:
            self._beat("waiting", self._total)
        return True

    def _beat(self, state: str, done: int) -> None:
        _beat(self._run, self._worker, self.order, state, done, self._total)


class _OtherSettings:
    """No work, while the settings of the run are not those of a work order.

    Worker 0 read the config before it was changed. It notices the change, and writes an order with
    the new settings. A segment with other settings than its own would not count as finished.

    Args:
      run: the run folder.
      worker: this worker.
      order: the work order.
      settings: of the run and the order.
    """

    def __init__(self, run: RunDir, worker: Worker, order: WorkOrder, settings: SettingsCheck):
        self.order: WorkOrder | None = order
        self._settings = settings
        log.warning(
            "the search settings of the run have changed since worker 0 wrote the work order of "
            "step %d; %s waits until worker 0 begins again with the new ones. If worker 0 has "
            "ended, start it again: %s",
            order.step,
            worker.name,
            Worker(0, worker.count).command(run),
        )

    def work(self, _: threading.Event) -> bool:
        """Returns False. If the settings have been changed back, the order is opened again."""
        if self._settings.same():
            self.order = None
        return False


def _beat(run: RunDir, worker: Worker, order: WorkOrder, state: str, done: int, total: int) -> None:
    heartbeat.beat(run, worker.name, state=state, snapshot_step=order.step, done=done, total=total)


def _open_share(
    run: RunDir, worker: Worker, order: WorkOrder, lease: Lease, paths: Paths
) -> _Share | _Segments | _OtherSettings | None:
    """Opens a work order; None if its snapshot was deleted, so that a newer order will follow."""
    lease.hold({SNAPSHOTS: [order.step]})
    try:
        snapshot = read_snapshot(run.snapshots / step_name(order.step))
    except NotPublishedError:
        return None
    config = refresh_config(run, snapshot, paths)
    if not order.is_of(config):
        return _OtherSettings(run, worker, order, SettingsCheck(run, snapshot, order, paths))
    store = _corpus_of(order, open_knowledge(run, config), config.corpus.knowledge)
    embedder = PassageEmbedder(config, store, snapshot)
    if len(segment_bounds(len(embedder.ids), config)) == 1:
        return _Share(run, worker, order, config, embedder)
    return _Segments(run, worker, order, SegmentMaker(run, config, embedder, order))


def _last_is_published(run: RunDir, paths: Paths) -> bool:
    """Whether the newest snapshot has an index of the corpus, in any generation."""
    newest, published = commit.latest(run.snapshots), commit.latest(run.published_index)
    if newest is None or published is None or published < newest:
        return newest is None
    config = newest_config(run, paths)
    return config is None or has_usable_index(run, newest, open_knowledge(run, config))


def _refuse_after(until: float, run: RunDir, worker: Worker, order: WorkOrder) -> None:
    """Raises an error if a work order with another number of workers has not been replaced."""
    if time.monotonic() < until:
        return
    raise MismatchError(
        "the index is built by another number of workers",
        where=f"work order of step {order.step} in {run.builder}",
        expected=f"{worker.count} workers, by --worker={worker.number}/{worker.count}",
        found=f"{order.workers} workers, by worker 0",
        fix=f"start all workers with the same n, from --worker=0/{order.workers} to "
        f"--worker={order.workers - 1}/{order.workers}",
    )


def _corpus_of(order: WorkOrder, newest: PassageStore, folder: str) -> PassageStore:
    """The corpus in the generation of the work order; it may have grown since."""
    if newest.corpus_hash == order.corpus_hash:
        return newest
    if order.corpus_hash in newest.lineage:
        return PassageStore.open(newest.path, newest.generation_of(order.corpus_hash))
    raise MismatchError(
        "this worker has another corpus than worker 0",
        where=folder,
        expected=f"corpus hash {order.corpus_hash}",
        found=f"corpus hash {newest.corpus_hash}",
        fix="copy the corpus of worker 0 to this machine",
    )
