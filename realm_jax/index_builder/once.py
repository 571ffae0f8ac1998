"""Brings the index of a finished run up to date with its corpus; embeds only what has changed."""

import hashlib
import logging
import threading
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32, Int64

from realm_jax.artifacts.corpus_change import corpus_change, rebuild_command, train_command
from realm_jax.artifacts.current_index import CurrentIndex, open_current
from realm_jax.artifacts.export import no_export
from realm_jax.artifacts.index_update import (
    BASE,
    listed_segments,
    newest_number,
    publish_update,
    update_of,
)
from realm_jax.artifacts.index_writer import Embedded, delete_outdated, extend, one_writer
from realm_jax.artifacts.required import index_step_of_export
from realm_jax.artifacts.run_config import NO_PATHS, Paths, newest_config, open_knowledge
from realm_jax.artifacts.segment_merging import (
    SMALL,
    merged,
    mostly_hidden,
    to_merge,
    visible_parts,
)
from realm_jax.artifacts.segments import delete_segments, publish_segment
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.errors import InputError, Stopped
from realm_jax.index_builder.built_segments import segment_bounds
from realm_jax.index_builder.recall import Probes, widen_to_floor
from realm_jax.index_builder.refresh import refresh
from realm_jax.index_builder.shards import open_shards
from realm_jax.index_builder.worker import JOB
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import LocalSearcher, available_kind, build_searcher
from realm_jax.storage import commit, files, heartbeat
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.locks import job_lock, still_allowed

log = logging.getLogger(__name__)

_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class OnceReport:
    """What was done.

    Attributes:
      generation: of the corpus that the index now covers.
      added: passages that had no vector.
      replaced: passages with another text.
      removed: passages that are not found any more.
      passages: number of passages that are found.
      segments: number of segments that are searched.
    """

    generation: int
    added: int
    replaced: int
    removed: int
    passages: int
    segments: int


def run_once(workdir: str, stop: threading.Event, paths: Paths = NO_PATHS) -> dict[str, int]:
    """Brings the index of a finished run up to date.

    Passages that were written since are embedded with the parameters of the index; the same command
    resumes after a kill. After a compaction of the corpus, no vector of a passage that was removed
    or replaced is left in the run.

    Args:
      workdir: the run folder.
      stop: set by SIGTERM.
      paths: see `run_config`.

    Returns:
      The fields of `OnceReport`.

    Raises:
      InputError: the run is not finished.
      MismatchError: the corpus was built again.
      Stopped: `stop` was set; finished shards are kept.
    """
    run = RunDir(workdir)
    files.check_writable(run.root)
    with job_lock(run, JOB, stop) as stop_or_lost:
        return asdict(_Once(run, stop_or_lost, paths).run())


def plan_once(workdir: str, paths: Paths = NO_PATHS) -> dict[str, int]:
    """What `run_once` would do; writes nothing. `passages` and `segments` are those of before."""
    before = _Once(RunDir(workdir), threading.Event(), paths).open()
    return asdict(_report(before, before))


class _Once:
    """One call of `run_once`.

    Args:
      run: the run folder.
      stop: the stop signal, which also says whether this process still holds the job's lock.
      paths: see `run_config`.
    """

    def __init__(self, run: RunDir, stop: threading.Event, paths: Paths):
        step, config = index_step_of_export(run), newest_config(run, paths)
        if step is None or config is None:
            raise no_export(run)
        self._run, self._step, self._config = run, step, config
        self._stop, self._paths = stop, paths
        self._allowed = still_allowed(stop)

    def open(self) -> CurrentIndex:
        """The index before the call."""
        run, store = self._run, open_knowledge(self._run, self._config)
        change = corpus_change(run, self._step, store)
        if change is not None:
            raise change.error(rebuild_command(run.workdir, self._paths))
        return open_current(run, self._step, store, {"dims": self._config.model.embedding})

    def run(self) -> OnceReport:
        """See `run_once`."""
        run = self._run
        if not commit.is_published(run.published_index / step_name(self._step)):
            self._rebuild(None)  # a killed call was replacing it: its shards have the vectors
        before = self.open()
        done = self._embedded(before)
        current = extend(run, before, done, self._embed(before), self._allowed)
        current = self._without_deleted(current)
        self._delete_leftovers()
        heartbeat.beat(run, JOB, state="stopped", index_step=self._step)
        return _report(before, current)

    def _embed(self, current: CurrentIndex) -> Any:
        encoder = Encoder(self._config, current.store.vocabulary.size)
        params = encoder.place(current.base.query_params)
        return lambda store, ids: encoder.embed_passages(params, store, ids)

    def _embedded(self, current: CurrentIndex) -> Embedded:
        """The vectors of the passages that were written; with those of merged segments, if any."""
        ids, store = current.missing, current.store
        vectors, parts = self._in_shards(current, ids), visible_parts(current)
        most = self._config.search.segment_passages
        parts = to_merge(parts, len(ids), most, mostly_hidden(parts))
        if not parts and len(ids) <= SMALL:
            return Embedded(store.generation, ids, np.asarray(vectors))
        rows = np.sort(np.concatenate([*(part.ids for part in parts), ids]))
        names, segments = tuple(part.segment.name for part in parts), []
        for start, end in segment_bounds(len(rows), self._config):
            first, last = int(rows[start]), int(rows[end - 1])
            new = slice(*np.searchsorted(ids, (first, last + 1)))
            some = merged([part.between(first, last) for part in parts], ids[new], vectors[new])
            segments.append(self._segment(current, *some))
        nothing = np.empty((0, vectors.shape[1]), np.float32)
        return Embedded(store.generation, _NO_IDS, nothing, tuple(segments), rows, names)

    def _in_shards(
        self, current: CurrentIndex, ids: Int64[np.ndarray, "R"]
    ) -> Float32[np.ndarray, "R E"]:
        """Embeds passages shard by shard; reuses the shards of a killed call."""
        if not len(ids):
            return np.empty((0, self._config.model.embedding), np.float32)
        config, store, embed = self._config, current.store, self._embed(current)
        folder, shard = self._shards(current), config.builder.shard
        dims = config.model.embedding
        with open_shards(folder, len(ids), dims, store.corpus_hash) as shards:
            stored = shards.stored()
            for start in range(0, len(ids), shard):
                if self._stop.is_set():
                    raise Stopped("embed")
                part = ids[start : start + shard]
                if start not in stored or not shards.load(start, start + len(part)):
                    shards.save(start, embed(store, part))
                done = start + len(part)
                heartbeat.beat(self._run, JOB, state="embedding", done=done, total=len(ids))
            return shards.vectors

    def _shards(self, current: CurrentIndex) -> epath.Path:
        """A folder for what changed between two generations; deletes those of other calls."""
        both = f"{current.corpus_hash} {current.store.corpus_hash}"
        name = f"once_{hashlib.sha256(both.encode()).hexdigest()[:16]}"
        for other in files.list_names(self._run.builder):
            if other.startswith("once_") and other != name:
                files.delete_tree(self._run.builder / other)
        return self._run.builder / name

    def _segment(
        self,
        current: CurrentIndex,
        ids: Int64[np.ndarray, "R"],
        vectors: Float32[np.ndarray, "R E"],
    ) -> str:
        searcher = self._searcher(current, vectors)
        return publish_segment(self._run, self._step, searcher, ids, vectors, self._allowed)

    def _searcher(
        self, current: CurrentIndex, vectors: Float32[np.ndarray, "R E"]
    ) -> LocalSearcher:
        """Exact for few vectors; else of the configured kind, with a recall above the floor."""
        if len(vectors) <= SMALL:
            return ExactSearcher(vectors)
        config, base = self._config, current.base
        snapshot = read_snapshot(self._run.snapshots / step_name(self._step))
        encoder = Encoder(config, current.store.vocabulary.size)
        queries = encoder.embed_queries(base.query_params, snapshot.require_probes())
        probes = Probes(vectors, queries)
        kind = available_kind(config.search.kind)
        searcher = build_searcher(kind, vectors, config.search, config.seed)
        floor = config.builder.recall_floor
        widen_to_floor(searcher, probes, floor, probes.recall(searcher))
        return searcher

    def _without_deleted(self, current: CurrentIndex) -> CurrentIndex:
        """Replaces the published index if it has vectors of passages that a compaction deleted."""
        store, hidden = current.store, current.index.hidden
        if len(store.layers) > 1 or not len(hidden) or len(current.pending):
            return current
        log.info("the corpus was compacted: deleting %d vectors from the index", len(hidden))
        self._rebuild(current)
        replaced = open_current(self._run, self._step, store)
        if len(replaced.index.hidden):
            log.warning(
                "%d vectors of deleted passages are left in %s: the corpus has changed meanwhile; "
                "run the same command again",
                len(replaced.index.hidden),
                self._run.published_index / step_name(self._step),
            )
        return replaced

    def _rebuild(self, current: CurrentIndex | None) -> None:
        """Publishes the index of the export again; takes the vectors that `current` has.

        Raises:
          InputError: the snapshot of its step is missing.
        """
        folder = self._run.snapshots / step_name(self._step)
        try:
            snapshot = read_snapshot(folder)
        except commit.NotPublishedError as error:
            raise InputError(
                "the snapshot is missing from which the index is built",
                where=folder,
                expected=error.expected,
                found="no snapshot: it was deleted, for example by `realm check --repair`",
                fix=f"publish both again: {train_command(self._run.workdir, self._paths)}",
            ) from error
        known = None if current is None else current.index
        refresh(self._run, snapshot, self._stop, paths=self._paths, known=known)

    def _delete_leftovers(self) -> None:
        """Deletes updates and segments that are not searched, and shards."""
        run, store = self._run, open_knowledge(self._run, self._config)
        self._allowed()
        with one_writer(run):
            newest = newest_number(run)
            current = open_current(run, self._step, store)
            if current.names == (BASE,) and listed_segments(run):  # of before the last rebuild
                publish_update(run, update_of(current.base), newest)
            delete_outdated(run, 1)
            delete_segments(run, set(files.list_names(run.segments)) - listed_segments(run))
        for name in files.list_names(run.builder):
            if name.startswith("once_"):
                files.delete_tree(run.builder / name)


def _report(before: CurrentIndex, current: CurrentIndex) -> OnceReport:
    rows = np.concatenate([segment.rows for segment in before.segments])
    ids, store = before.pending, before.store
    known = np.isin(ids, rows) & ~np.isin(ids, before.removed)
    exists = store.is_live(ids)
    return OnceReport(
        generation=current.store.generation,
        added=int((exists & ~known).sum()),
        replaced=int((exists & known).sum()),
        removed=int((~exists & known).sum()),
        passages=current.index.searcher.size,
        segments=len(current.segments),
    )
