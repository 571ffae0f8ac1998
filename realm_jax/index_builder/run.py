"""JOB 2: follows snapshots, embeds the corpus, and builds, checks and publishes indexes."""

import logging
import threading
import time
from typing import Any

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts import audit_log
from realm_jax.artifacts.published_index import publish_index
from realm_jax.artifacts.required import required_indexes
from realm_jax.artifacts.snapshots import Snapshot, read_snapshot
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import DamageError, RealmError, Stopped
from realm_jax.index_builder.build import BuiltIndex, build_index
from realm_jax.index_builder.embed_corpus import embed_corpus
from realm_jax.index_builder.recall import PROBE_HITS
from realm_jax.monitoring.writers import Writers, metric_writers
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.searcher import searcher_class
from realm_jax.storage import commit, files, heartbeat
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.follow import ended, follow
from realm_jax.storage.layout import PUBLISHED_INDEX, SNAPSHOTS, RunDir, step_name, step_of
from realm_jax.storage.leases import Lease, retain
from realm_jax.storage.locks import Lock, job_lock

log = logging.getLogger(__name__)
JOB = "index_builder"


def run(workdir: str, poll_seconds: float, stop: threading.Event, worker: str = "") -> int:
    """Publishes an index of each snapshot until the run has ended.

    If several snapshots are waiting, only the newest is built. Shapes and corpus come from the
    config of the snapshot. The settings of the search and the recall floor come from the config
    with which the run was last started.

    Args:
      workdir: the run folder.
      poll_seconds: time between two checks for a new snapshot.
      stop: set by SIGTERM; finished shards are kept for the next start of this job.
      worker: a different name for each of several builders that share the work of one run.

    Returns:
      Number of indexes published.

    Raises:
      Stopped: `stop` was set while another builder of this name was still running.
      RealmError: see `refresh` and `job_lock`.
    """
    run_dir, name = RunDir(workdir), f"{JOB}-{worker}" if worker else JOB
    files.check_writable(run_dir.root)
    with job_lock(run_dir, name, stop) as stop_or_lost:
        return _follow_snapshots(run_dir, name, poll_seconds, stop_or_lost)


def _follow_snapshots(
    run_dir: RunDir, name: str, poll_seconds: float, stop: threading.Event
) -> int:
    with Lease(run_dir, name).renewed() as lease:
        return _build_each(run_dir, name, poll_seconds, stop, lease)


def _build_each(
    run_dir: RunDir, name: str, poll_seconds: float, stop: threading.Event, lease: Lease
) -> int:
    published = 0
    newest = commit.latest(run_dir.published_index)
    if newest is not None:
        _delete_shards(run_dir, newest)  # the builder that published it may have been killed
    audit_log.log_missing_indexes(run_dir)
    heartbeat.beat(run_dir, name, state="waiting")
    if commit.latest(run_dir.snapshots) is None:
        log.info("waiting for the first snapshot in %s", run_dir.snapshots)
    snapshots = follow(
        run_dir.snapshots,
        newest,
        poll_seconds=poll_seconds,
        stop=stop,
        ended=lambda: ended(run_dir),
    )
    writers: Writers | None = None
    try:
        for step in snapshots:
            lease.hold({SNAPSHOTS: [step]})
            try:
                snapshot = read_snapshot(run_dir.snapshots / step_name(step))
            except (DamageError, NotPublishedError) as error:
                log.warning("skipping the snapshot of step %d:\n%s", step, error)
                continue
            config = refresh_config(run_dir, snapshot)
            metrics = refresh(run_dir, snapshot, stop, name)
            if metrics is not None:
                published += 1
                writers = writers or Writers(JOB, metric_writers(run_dir, config, JOB))
                writers.write(step, metrics)
                required = required_indexes(run_dir, config.refresh)
                retain(run_dir, PUBLISHED_INDEX, config.refresh.keep, required=required)
            heartbeat.beat(run_dir, name, state="waiting", index_step=step)
    except Stopped:
        log.info("stopped; the same command resumes after the last finished shard")
    finally:
        lease.release()
        if writers is not None:
            writers.close()
    heartbeat.beat(run_dir, name, state="stopped")
    return published


def refresh(
    run_dir: RunDir, snapshot: Snapshot, stop: threading.Event, job: str = JOB
) -> dict[str, Any] | None:
    """Embeds the corpus with one snapshot, builds the index, checks its recall and publishes it.

    Args:
      run_dir: the run folder.
      snapshot: its embedder is used.
      stop: checked between shards.
      job: name for the heartbeat.

    Returns:
      `passages`, `recall`, `seconds` in total and `seconds_*` by phase; None if this index or a
      newer one is already published.

    Raises:
      Stopped: `stop` was set between two shards.
      RealmError: the recall is below `builder.recall_floor`, or another builder has taken over the
        publication; nothing is published.
    """
    began = time.monotonic()
    config = refresh_config(run_dir, snapshot)
    searcher_class(config.search.kind)  # fails now, not after hours, if a package is missing
    store = PassageStore.open(config.corpus.knowledge)
    vectors = _embed(run_dir, snapshot, config, store, stop, began, job)
    lock = Lock(run_dir.shards(snapshot.step), "finish")  # one of several builders publishes
    while vectors is not None and not _is_published(run_dir, snapshot.step) and not lock.acquire():
        if stop.wait(config.builder.poll_seconds):
            raise Stopped("embed")
    if vectors is None or _is_published(run_dir, snapshot.step):
        # The builder that published it may have been killed before these two steps.
        commit.advance_pointer(run_dir.published_index, snapshot.step)
        _delete_shards(run_dir, snapshot.step)
        return None
    with lock.renewed():
        metrics = _build_and_publish(run_dir, snapshot, config, store, vectors, began, job, lock)
    _delete_shards(run_dir, snapshot.step)
    return metrics


def _embed(
    run_dir: RunDir,
    snapshot: Snapshot,
    config: ConfigDict,
    store: PassageStore,
    stop: threading.Event,
    began: float,
    job: str,
) -> Float32[np.ndarray, "N E"] | None:
    """The vectors of all passages; None if this index or a newer one is already published."""
    if _is_published(run_dir, snapshot.step):
        return None
    encoder = Encoder(config, store.vocabulary.size)
    params = encoder.place(snapshot.params["embedder"])

    def progress(done: int) -> None:
        seconds = time.monotonic() - began
        heartbeat.beat(
            run_dir,
            job,
            state="embedding",
            snapshot_step=snapshot.step,
            done=done,
            total=len(store),
            eta_s=seconds / done * (len(store) - done),
        )

    return embed_corpus(
        config,
        store,
        lambda ids: encoder.embed_passages(params, store, ids),
        run_dir.shards(snapshot.step),
        stop,
        progress,
        lambda: _is_published(run_dir, snapshot.step),
    )


def _is_published(run_dir: RunDir, step: int) -> bool:
    """Whether the index of this step or a newer one is published."""
    newest = commit.latest(run_dir.published_index)
    newer = newest is not None and newest > step
    return newer or commit.is_published(run_dir.published_index / step_name(step))


def _delete_shards(run_dir: RunDir, step: int) -> None:
    """Deletes the shards of a published step and of all earlier steps.

    Builders that were stopped and resumed at a newer snapshot leave shards of earlier steps. A
    builder that still works on such shards stops when it finds a newer index published.
    """
    for old in map(step_of, files.list_names(run_dir.builder)):
        if old is not None and old <= step:
            files.delete_tree(run_dir.shards(old))


def _build_and_publish(
    run_dir: RunDir,
    snapshot: Snapshot,
    config: ConfigDict,
    store: PassageStore,
    vectors: Float32[np.ndarray, "N E"],
    began: float,
    job: str,
    lock: Lock,
) -> dict[str, Any] | None:
    """Returns the metrics of the published index; None if it was published before."""
    embedded = time.monotonic()
    size, step = len(store), snapshot.step
    heartbeat.beat(run_dir, job, state="building", snapshot_step=step, done=size, total=size)
    built = build_index(run_dir, step, config, store.corpus_hash, vectors)
    _require_recall(built, step, config)
    fields = {
        "snapshot_step": step,
        "config_hash": config_lib.model_hash(config),
        "corpus_hash": store.corpus_hash,
        "passages": size,
        "dtype": str(vectors.dtype),
        "recall": built.recall,
        **built.trained,
        "seconds": time.monotonic() - began,
        "snapshot_time": snapshot.manifest.get("time"),
    }
    checked = time.monotonic()
    rows, query_params = np.arange(size, dtype=np.int64), snapshot.params["embedder"]
    lock.assert_held()
    arguments = (built.searcher, rows, vectors, query_params, fields, snapshot.config_json)
    is_new = publish_index(run_dir, step, *arguments, lock.assert_held)
    audit_log.log_index(run_dir, step, built.searcher, rows, vectors)
    log.info(
        "index of step %d: %d passages in %.1f s, recall@%d %.3f",
        step,
        size,
        fields["seconds"],
        PROBE_HITS,
        built.recall,
    )
    seconds = {
        "seconds": time.monotonic() - began,
        "seconds_embed": embedded - began,
        **built.seconds,
        "seconds_publish": time.monotonic() - checked,
    }
    return {"passages": size, "recall": built.recall, **seconds} if is_new else None


def _require_recall(built: BuiltIndex, step: int, config: ConfigDict) -> None:
    if built.recall < config.builder.recall_floor:
        raise RealmError(
            f"recall@{PROBE_HITS} of the new index is below the floor; it is not published",
            where=f"index of step {step}",
            expected=f"at least {config.builder.recall_floor} (config.builder.recall_floor)",
            found=built.recall,
            fix="start `realm run` or `realm train` again with a larger "
            "--config.search.leaves_searched or --config.search.reorder; embedded shards are kept",
        )


def refresh_config(run_dir: RunDir, snapshot: Snapshot) -> ConfigDict:
    """The config of a snapshot, with the search settings and recall floor of the run's config.

    If an index is below the recall floor, the run can therefore be started again with other search
    settings. `retrieval` is taken from the run as well: the builder does not use it, but some of
    its values are valid only with some searchers.
    """
    where = f"snapshot of step {snapshot.step}"
    config = config_lib.from_json(snapshot.config_json, where=where)
    if not run_dir.config.exists():
        return config
    current = config_lib.from_json(run_dir.config.read_text(), where=run_dir.config)
    with config.unlocked():
        config.search.update(current.search)
        config.retrieval.update(current.retrieval)
        config.builder.recall_floor = current.builder.recall_floor
    return config_lib.check(config)
