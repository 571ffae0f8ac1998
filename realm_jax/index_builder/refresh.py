"""One refresh, by worker 0: embeds the corpus with a snapshot, builds, checks and publishes."""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts import audit_log
from realm_jax.artifacts.corpus_change import is_of_corpus
from realm_jax.artifacts.published_index import PublishedIndex, Vectors, publish_index
from realm_jax.artifacts.run_config import NO_PATHS, Paths, open_knowledge
from realm_jax.artifacts.snapshots import Snapshot
from realm_jax.corpus.fingerprints import fingerprints
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import RealmError
from realm_jax.index_builder.build import BuiltIndex, build_index
from realm_jax.index_builder.built_segments import segment_bounds, settings_of
from realm_jax.index_builder.embed_corpus import Progress, embed_corpus
from realm_jax.index_builder.gather_segments import joined, made_segments
from realm_jax.index_builder.passage_embedder import PassageEmbedder
from realm_jax.index_builder.recall import PROBE_HITS, require_floor
from realm_jax.index_builder.refresh_config import SettingsCheck, refresh_config
from realm_jax.index_builder.rolling import NONE, newest_to_keep
from realm_jax.index_builder.segment_maker import SegmentMaker
from realm_jax.index_builder.work_order import (
    WorkOrder,
    delete_shards,
    delete_shards_of_other_corpus,
    write_order,
)
from realm_jax.index_builder.worker import JOB, ONLY_WORKER, Worker
from realm_jax.retrieval.searcher import available_kind, searcher_class
from realm_jax.storage import commit, heartbeat
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.storage.leases import SECONDS as LEASE_SECONDS
from realm_jax.storage.leases import delete_unless_leased
from realm_jax.storage.locks import still_allowed

log = logging.getLogger(__name__)


def refresh(
    run_dir: RunDir,
    snapshot: Snapshot,
    stop: threading.Event,
    worker: Worker = ONLY_WORKER,
    paths: Paths = NO_PATHS,
    known: PublishedIndex | None = None,
) -> dict[str, Any] | None:
    """Embeds the corpus with one snapshot, builds the index, checks its recall and publishes it.

    If the search settings of the run change meanwhile, several workers begin again with the new
    ones: a worker that is started after the change has read no others.

    Args:
      run_dir: the run folder.
      snapshot: its embedder is used.
      stop: checked between shards. If it is that of a job lock, the lock is checked before
        anything is published or deleted.
      worker: worker 0 of n; the others embed their shards at the same time (`assist`).
      paths: see `run_config`.
      known: see `PassageEmbedder`.

    Returns:
      `passages`, `recall`, `recall_passages`, `seconds` in total and `seconds_*` by phase; None if
      this index of the current corpus is already published.

    Raises:
      Stopped: `stop` was set between two shards.
      RealmError: the snapshot has no probe queries, the recall is below `builder.recall_floor`, or
        another builder has taken over; nothing is published.
      MismatchError: the corpus has another vocabulary than the run.
    """
    metrics, is_current = None, False
    while not is_current:
        try:
            metrics = _build(run_dir, snapshot, stop, worker, paths, known)
            is_current = True
        except _SettingsChangedError:
            log.info("the search settings of the run have changed: beginning the refresh again")
    still_allowed(stop)()
    delete_shards(run_dir, snapshot.step)  # their memory map was freed when `_build` returned
    return metrics


class _SettingsChangedError(Exception):
    """The run has other search settings than the work order."""


def _build(
    run_dir: RunDir,
    snapshot: Snapshot,
    stop: threading.Event,
    worker: Worker,
    paths: Paths,
    known: PublishedIndex | None,
) -> dict[str, Any] | None:
    """Builds and publishes the index; see `refresh`.

    Raises:
      _SettingsChangedError: there are several workers, and one that is started now would not work
        on the order: it reads other settings from the config of the run.
    """
    began, step = time.monotonic(), snapshot.step
    config = refresh_config(run_dir, snapshot, paths)
    searcher_class(
        available_kind(config.search.kind)
    )  # fails now, not after hours, if a package is missing
    store = open_knowledge(run_dir, config)
    if is_of_corpus(run_dir.published_index / step_name(step), store.corpus_hash):
        # The builder that published it may have been killed before it moved the pointer.
        still_allowed(stop)()
        commit.advance_pointer(run_dir.published_index, step)
        return None
    embedder = PassageEmbedder(config, store, snapshot, known)
    order = _order(run_dir, step, config, store, stop, worker)
    report = _progress(run_dir, step, len(embedder.ids))
    settings = SettingsCheck(run_dir, snapshot, order, paths)

    def progress(done: int) -> None:
        report(done)
        if worker.count > 1 and not settings.same():
            raise _SettingsChangedError

    with _made(run_dir, config, store, embedder, stop, worker, order, progress) as (built, vectors):
        given = (run_dir, snapshot, config, store, embedder.ids, vectors, built, began, stop)
        return _publish(*given)


def _order(
    run_dir: RunDir,
    step: int,
    config: ConfigDict,
    store: PassageStore,
    stop: threading.Event,
    worker: Worker,
) -> WorkOrder:
    """Writes the work order of all workers."""
    settings, kept = settings_of(config, store.corpus_hash), NONE
    if config.refresh.mode == "rolling":
        kept = newest_to_keep(run_dir, step, settings)
    order = WorkOrder(step, worker.count, config.builder.shard, store.corpus_hash, settings, kept)
    allowed = still_allowed(stop)
    allowed()
    delete_shards_of_other_corpus(run_dir, order)
    allowed()  # the deletion may take long
    write_order(run_dir, order)
    return order


@contextlib.contextmanager
def _made(
    run_dir: RunDir,
    config: ConfigDict,
    store: PassageStore,
    embedder: PassageEmbedder,
    stop: threading.Event,
    worker: Worker,
    order: WorkOrder,
    progress: Progress,
) -> Iterator[tuple[BuiltIndex, Vectors]]:
    """The built index and the vectors of its rows, which may be read during the block.

    Raises:
      RealmError: the recall is below the floor.
    """
    size, floor, step = len(embedder.ids), config.builder.recall_floor, order.step
    where, segments = f"index of step {step}", len(segment_bounds(size, config))
    if segments == 1:
        whole = _whole(run_dir, step, config, store, embedder, stop, worker, progress)
        require_floor(whole[0].recall, floor, where)
        yield whole
        return
    if worker.count > segments:
        log.warning(
            "%d workers for %d segments: some have no work; lower search.segment_passages",
            worker.count,
            segments,
        )
    maker = SegmentMaker(run_dir, config, embedder, order)
    poll = config.builder.poll_seconds
    with made_segments(run_dir, maker, worker, stop, poll, progress) as made:
        together = joined(made, maker)
        require_floor(together[0].recall, floor, where)
        yield together


def _whole(
    run_dir: RunDir,
    step: int,
    config: ConfigDict,
    store: PassageStore,
    embedder: PassageEmbedder,
    stop: threading.Event,
    worker: Worker,
    progress: Progress,
) -> tuple[BuiltIndex, Float32[np.ndarray, "N E"]]:
    """An index of one segment, whose shards all workers embed."""
    began, queries = time.monotonic(), embedder.probes()
    folder, size = run_dir.shards(step), len(embedder.ids)
    given = (config, embedder.ids, embedder.embed, folder, store.corpus_hash)
    vectors = embed_corpus(*given, stop, progress, worker)
    embedded = time.monotonic()
    heartbeat.beat(run_dir, JOB, state="building", snapshot_step=step, done=size, total=size)
    built = build_index(run_dir, step, config, store.corpus_hash, vectors, queries)
    seconds = {"seconds_embed": embedded - began, **built.seconds}
    return dataclasses.replace(built, seconds=seconds), vectors


def _progress(
    run_dir: RunDir, step: int, total: int, clock: Callable[[], float] = time.monotonic
) -> Progress:
    """Writes heartbeats; its argument is the number of passages done.

    The time left is estimated from the passages done since the first call, because earlier ones may
    be those of a process that was killed.
    """
    first: tuple[float, int] | None = None

    def progress(done: int) -> None:
        nonlocal first
        now = clock()
        first = first or (now, done)
        began, before = first
        fields: dict[str, Any] = {"snapshot_step": step, "done": done, "total": total}
        if done > before:
            fields["eta_s"] = (now - began) / (done - before) * (total - done)
        heartbeat.beat(run_dir, JOB, state="embedding", **fields)

    return progress


def _publish(
    run_dir: RunDir,
    snapshot: Snapshot,
    config: ConfigDict,
    store: PassageStore,
    rows: Int64[np.ndarray, "N"],
    vectors: Vectors,
    built: BuiltIndex,
    began: float,
    stop: threading.Event,
) -> dict[str, Any] | None:
    """Returns the metrics of the published index; None if it was published before."""
    checked, allowed = time.monotonic(), still_allowed(stop)
    size, step, recalls = len(rows), snapshot.step, _recalls(built)
    fields = _fields(snapshot, config, store, built) | {
        "passages": size,
        "seconds": checked - began,
    }
    query_params = snapshot.params["embedder"]
    arguments = (built.searcher, rows, vectors, query_params, fields, snapshot.config_json)
    allowed()
    _delete_index_of_other_corpus(run_dir, step, store.corpus_hash)
    is_new = publish_index(run_dir, step, *arguments, allowed, fingerprints(store))
    allowed()
    audit_log.log_index(run_dir, step, built.searcher, rows, vectors)
    now = time.monotonic()
    log.info(
        "index of step %d: %d passages in %.1f s, recall@%d %.3f (passages as queries: %.3f)",
        step,
        size,
        checked - began,
        PROBE_HITS,
        built.recall,
        built.recall_passages,
    )
    seconds = {"seconds": now - began, **built.seconds, "seconds_publish": now - checked}
    return {"passages": size, **recalls, **seconds} if is_new else None


def _fields(
    snapshot: Snapshot, config: ConfigDict, store: PassageStore, built: BuiltIndex
) -> dict[str, Any]:
    """Manifest fields of an index that its inputs and its recall determine."""
    return {
        "snapshot_step": snapshot.step,
        "snapshot_time": snapshot.manifest.get("time"),
        "config_hash": config_lib.model_hash(config),
        "corpus_hash": store.corpus_hash,
        "dtype": "float32",
        **_recalls(built),
        **built.trained,
    }


def _delete_index_of_other_corpus(run_dir: RunDir, step: int, corpus_hash: str) -> None:
    """Deletes the index of the same snapshot and another version of the corpus.

    Raises:
      RealmError: a process holds a lease of it.
    """
    folder = run_dir.published_index / step_name(step)
    if not commit.is_published(folder) or is_of_corpus(folder, corpus_hash):
        return
    if not delete_unless_leased(run_dir, PUBLISHED_INDEX, step):
        raise RealmError(
            "the index of the earlier corpus is in use, so the new one cannot replace it",
            where=folder,
            expected=f"no lease in {run_dir.leases}",
            found="a lease of a trainer that runs, or was stopped less than "
            f"{LEASE_SECONDS / 60:.0f} minutes ago",
            fix="stop the trainer, or wait until its lease has expired, and run the same command "
            "again; embedded shards are kept",
        )


def _recalls(built: BuiltIndex) -> dict[str, float]:
    return {"recall": built.recall, "recall_passages": built.recall_passages}
