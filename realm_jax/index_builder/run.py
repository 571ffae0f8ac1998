"""JOB 2: follows snapshots, embeds the corpus, and builds, checks and publishes indexes."""

import logging
import threading
from collections.abc import Callable

from realm_jax.artifacts import audit_log
from realm_jax.artifacts.corpus_change import corpus_change
from realm_jax.artifacts.required import required_indexes
from realm_jax.artifacts.run_config import NO_PATHS, Paths, newest_config, open_knowledge
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.errors import DamageError, Stopped
from realm_jax.index_builder.assist import assist
from realm_jax.index_builder.refresh import refresh
from realm_jax.index_builder.refresh_config import refresh_config
from realm_jax.index_builder.work_order import delete_shards
from realm_jax.index_builder.worker import JOB, ONLY_WORKER, Worker
from realm_jax.monitoring.writers import Writers, metric_writers
from realm_jax.storage import commit, files, heartbeat
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.follow import end_of, follow
from realm_jax.storage.layout import PUBLISHED_INDEX, SNAPSHOTS, RunDir, step_name
from realm_jax.storage.leases import Lease, retain
from realm_jax.storage.locks import job_lock, still_allowed

log = logging.getLogger(__name__)


def run(
    workdir: str,
    poll_seconds: float,
    stop: threading.Event,
    worker: Worker = ONLY_WORKER,
    paths: Paths = NO_PATHS,
    last_step: int = 0,
) -> int:
    """Publishes an index of each snapshot until the run has ended.

    If several snapshots are waiting, only the newest is built; it is built again if the corpus has
    changed since. Shapes come from the config of the snapshot. The inputs, the settings of the
    search and the recall floor come from the config with which the run was last started.

    Args:
      workdir: the run folder.
      poll_seconds: time between two checks for a new snapshot or work order.
      stop: set by SIGTERM; finished shards are kept for the next start of this job.
      worker: worker i of n; those after worker 0 embed shards or make segments (`assist`).
      paths: see `run_config`.
      last_step: of the trainer that is started at the same time; see `follow.end_of`.

    Returns:
      Number of indexes published.

    Raises:
      Stopped: `stop` was set while another process with the same worker number was still running.
      RealmError: see `refresh`, `assist` and `job_lock`.
    """
    run_dir = RunDir(workdir)
    over = end_of(run_dir, last_step)
    files.check_writable(run_dir.root)
    with (
        job_lock(run_dir, worker.name, stop) as stop_or_lost,
        Lease(run_dir, worker.name).renewed() as lease,
    ):
        published = 0
        if worker.number:
            assist(run_dir, worker, poll_seconds, stop_or_lost, lease, over, paths)
        else:
            builder = _Builder(run_dir, worker, stop_or_lost, paths)
            published = builder.follow(poll_seconds, lease, over)
        lease.release()  # not after an error: a process that has taken over may hold it
        return published


class _Builder:
    """Worker 0 of a run.

    Args:
      run_dir: the run folder.
      worker: worker 0 of n.
      stop: the stop signal, which also says whether this process still holds the job's lock.
      paths: see `run_config`.
    """

    def __init__(self, run_dir: RunDir, worker: Worker, stop: threading.Event, paths: Paths):
        self._run_dir, self._worker, self._stop, self._paths = run_dir, worker, stop, paths
        self._writers: Writers | None = None

    def follow(self, poll_seconds: float, lease: Lease, ended: Callable[[], bool]) -> int:
        """Builds an index of each snapshot until the run has ended; returns their number."""
        run_dir, published = self._run_dir, 0
        snapshots = follow(
            run_dir.snapshots,
            self._start(),
            poll_seconds=poll_seconds,
            stop=self._stop,
            ended=ended,
        )
        try:
            for step in snapshots:
                lease.hold({SNAPSHOTS: [step]})
                published += self._build(step)
                heartbeat.beat(run_dir, JOB, state="waiting", index_step=step)
        except Stopped:
            log.info("stopped; the same command resumes after the last finished shard")
        finally:
            if self._writers is not None:
                self._writers.close()
        heartbeat.beat(run_dir, JOB, state="stopped")
        return published

    def _start(self) -> int | None:
        """Finishes what a killed builder had begun; returns the step after which to build."""
        run_dir = self._run_dir
        newest = commit.latest(run_dir.published_index)
        if newest is not None:
            delete_shards(run_dir, newest)
        audit_log.log_missing_indexes(run_dir)
        heartbeat.beat(run_dir, JOB, state="waiting")
        if commit.latest(run_dir.snapshots) is None:
            log.info("waiting for the first snapshot in %s", run_dir.snapshots)
        return None if self._corpus_has_changed(newest) else newest

    def _corpus_has_changed(self, newest: int | None) -> bool:
        """Whether the newest index is of another version of the corpus, which is logged."""
        config = None if newest is None else newest_config(self._run_dir, self._paths)
        if config is None:
            return False
        change = corpus_change(self._run_dir, newest, open_knowledge(self._run_dir, config))
        if change is not None:
            log.info("the knowledge corpus has changed; building its index again; %s", change)
        return change is not None

    def _build(self, step: int) -> bool:
        """Builds the index of one snapshot; False if it is damaged or its index is published."""
        run_dir = self._run_dir
        try:
            snapshot = read_snapshot(run_dir.snapshots / step_name(step))
        except (DamageError, NotPublishedError) as error:
            log.warning("skipping the snapshot of step %d:\n%s", step, error)
            return False
        metrics = refresh(run_dir, snapshot, self._stop, self._worker, self._paths)
        if metrics is None:
            return False
        config = refresh_config(run_dir, snapshot, self._paths)
        self._writers = self._writers or Writers(JOB, metric_writers(run_dir, config, JOB))
        self._writers.write(step, metrics)
        required = required_indexes(run_dir, config.refresh)
        still_allowed(self._stop)()
        retain(run_dir, PUBLISHED_INDEX, config.refresh.keep, required=required)
        return True
