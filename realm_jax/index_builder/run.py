"""JOB 2: follows snapshots, embeds the corpus, builds, checks and publishes indexes."""

import logging
import threading
import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts import audit_log as history
from realm_jax.artifacts.published_index import publish_index
from realm_jax.artifacts.snapshots import Snapshot, read_snapshot
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import DamageError, RealmError, Stopped
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
    """Publishes an index of every snapshot it is quick enough for, until the run has ended.

    Shapes and corpus come from each snapshot's config, never from flags; how an index is built and
    judged (`search`, `builder.recall_floor`) from the run's config, as it was last started with.

    Args:
      workdir: the run folder.
      poll_seconds: between looks for a new snapshot.
      stop: set by SIGTERM; finished shards stay for the next life of this job.
      worker: a name of its own for each of several builders of one run; they share the work.

    Returns:
      Indexes published.

    Raises:
      Stopped: `stop` was set while another builder of this name still ran.
      RealmError: see `refresh` and `job_lock`.
    """
    run_dir, name = RunDir(workdir), f"{JOB}-{worker}" if worker else JOB
    files.check_writable(run_dir.root)
    with job_lock(run_dir, name, stop) as stop_or_lost:
        return _follow(run_dir, name, poll_seconds, stop_or_lost)


def _follow(run_dir: RunDir, name: str, poll_seconds: float, stop: threading.Event) -> int:
    lease = Lease(run_dir, name)
    published = 0
    newest = commit.latest(run_dir.published_index)
    if newest is not None:
        _sweep(run_dir, newest)  # its publisher may have died
    history.log_missing_indexes(run_dir)
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
                log.warning("snapshot of step %d left out:\n%s", step, error)
                continue
            config = refresh_config(run_dir, snapshot)
            figures = refresh(run_dir, snapshot, stop, name)
            if figures is not None:
                published += 1
                writers = writers or Writers(JOB, metric_writers(run_dir, config, JOB))
                writers.write(step, figures)
                retain(run_dir, PUBLISHED_INDEX, config.refresh.keep)
            heartbeat.beat(run_dir, name, state="waiting", index_step=step)
    except Stopped:
        log.info("stopped; the same command goes on at the shard it was at")
    finally:
        lease.release()
        if writers is not None:
            writers.close()
    heartbeat.beat(run_dir, name, state="stopped")
    return published


def refresh(
    run_dir: RunDir, snapshot: Snapshot, stop: threading.Event, job: str = JOB
) -> dict[str, Any] | None:
    """One cycle: embed the corpus, build, check, publish.

    Returns:
      `passages`, `recall` and `seconds` of the index, also by part; None if another builder
      published it, or it or a newer one was there.

    Raises:
      Stopped: the stop signal came between two shards.
      RealmError: recall below `builder.recall_floor`, or another builder took over the finishing;
        nothing is published.
    """
    began = time.monotonic()
    config = refresh_config(run_dir, snapshot)
    searcher_class(config.search.kind)  # what is not installed is told before hours of embedding
    store = PassageStore.open(config.corpus.knowledge)
    params = jax.device_put(snapshot.params["embedder"])
    encoder = Encoder(config, store.vocabulary.size)
    shards = run_dir.shards(snapshot.step)

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

    def embed(ids: np.ndarray) -> Float32[np.ndarray, "S E"]:
        return encoder.embed_passages(params, store, ids)

    over = lambda: _is_over(run_dir, snapshot.step)  # noqa: E731
    vectors = None
    if not over():
        vectors = embed_corpus(config, store, embed, shards, stop, progress, over)
    finishing = Lock(shards, "finish")
    while vectors is not None and not over() and not finishing.acquire():
        if stop.wait(config.builder.poll_seconds):
            raise Stopped("embed")
    if vectors is None or over():
        commit.advance_pointer(
            run_dir.published_index, snapshot.step
        )  # its publisher may have died
        _sweep(run_dir, snapshot.step)  # what a late comer may have left
        return None
    with finishing.renewed():
        figures = _finish(run_dir, snapshot, config, store, vectors, began, job, finishing)
    _sweep(run_dir, snapshot.step)
    return figures


def _is_over(run_dir: RunDir, step: int) -> bool:
    """Whether the index of this step or a newer one is published."""
    newest = commit.latest(run_dir.published_index)
    newer = newest is not None and newest > step
    return newer or commit.is_published(run_dir.published_index / step_name(step))


def _sweep(run_dir: RunDir, step: int) -> None:
    """Deletes the shards of a step that is over, and of those before it.

    Builders that were stopped or killed and went on at a newer snapshot have left these. One that
    still works at them is told that they are over.
    """
    left = [step_of(name) for name in files.list_names(run_dir.builder)]
    for old in left:
        if old is not None and old <= step:
            files.delete_tree(run_dir.shards(old))


def _finish(
    run_dir: RunDir,
    snapshot: Snapshot,
    config: ConfigDict,
    store: PassageStore,
    vectors: Float32[np.ndarray, "N E"],
    began: float,
    job: str,
    finishing: Lock,
) -> dict[str, Any] | None:
    """Build, check, publish: of several builders, one does it."""
    parameters = snapshot.params["embedder"]
    embedded = time.monotonic()
    heartbeat.beat(
        run_dir,
        job,
        state="building",
        snapshot_step=snapshot.step,
        done=len(store),
        total=len(store),
    )
    made = built(run_dir, snapshot.step, config, store.corpus_hash, vectors)
    if made.recall < config.builder.recall_floor:
        raise RealmError(
            f"recall@{PROBE_HITS} of the new index is below the floor; it is not published",
            where=f"index of step {snapshot.step}",
            expected=f"at least {config.builder.recall_floor} (config.builder.recall_floor)",
            found=made.recall,
            fix="start `realm run` or `realm train` again with a larger "
            "--config.search.leaves_searched or --config.search.reorder; embedded shards are kept",
        )
    fields = {
        "snapshot_step": snapshot.step,
        "config_hash": config_lib.model_hash(config),
        "corpus_hash": store.corpus_hash,
        "passages": len(store),
        "dtype": str(vectors.dtype),
        "recall": made.recall,
        **made.trained,
        "seconds": time.monotonic() - began,
        "snapshot_time": snapshot.manifest.get("time"),
    }
    checked = time.monotonic()
    rows = np.arange(len(store), dtype=np.int64)
    step, searcher = snapshot.step, made.searcher
    finishing.assert_held()
    fresh = publish_index(
        run_dir, step, searcher, rows, vectors, parameters, fields, snapshot.config_json
    )
    history.log_index(run_dir, step, searcher, rows, vectors)
    log.info(
        "index of step %d: %d passages in %.1f s, recall@%d %.3f",
        snapshot.step,
        len(store),
        fields["seconds"],
        PROBE_HITS,
        made.recall,
    )
    seconds = {
        "seconds": time.monotonic() - began,
        "seconds_embed": embedded - began,
        **made.seconds,
        "seconds_publish": time.monotonic() - checked,
    }
    return {"passages": len(store), "recall": made.recall, **seconds} if fresh else None


def refresh_config(run_dir: RunDir, snapshot: Snapshot) -> ConfigDict:
    """The snapshot's config, with the search settings and the recall floor of the run's own.

    So an index below the floor can be mended by starting the run again with other settings. Those
    of `retrieval`, which the builder does not read, come along: not all go with each searcher.
    """
    where = f"snapshot of step {snapshot.step}"
    config = config_lib.from_json(snapshot.config_json, where=where)
    if not run_dir.config.exists():
        return config
    now = config_lib.from_json(run_dir.config.read_text(), where=run_dir.config)
    with config.unlocked():
        config.search.update(now.search)
        config.retrieval.update(now.retrieval)
        config.builder.recall_floor = now.builder.recall_floor
    return config_lib.check(config)
