"""Extends the index of a finished run by the passages that its corpus has gained and lost."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from realm_jax.artifacts.current_index import CurrentIndex, open_current
from realm_jax.artifacts.index_update import (
    BASE,
    IndexUpdate,
    newest_number,
    publish_update,
    segments_of_updates,
)
from realm_jax.artifacts.segment_merging import SMALL, merged, to_merge, visible_parts
from realm_jax.artifacts.segments import delete_segments, publish_segment
from realm_jax.corpus.store import PassageStore
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage import files
from realm_jax.storage.flock import exclusive, warn_without_flock
from realm_jax.storage.layout import INDEX_UPDATES, RunDir
from realm_jax.storage.leases import retain

_LOCK = "lock"  # in the folder of the updates; never deleted
_WAITING = "waiting for another command that updates the index of this run"
_ADVICE = "use one writer at a time"
_KEEP = 2  # updates; a reader may be opening the one before the newest

Embed = Callable[[PassageStore, Int64[np.ndarray, "R"]], Float32[np.ndarray, "R E"]]


@dataclass(frozen=True)
class Embedded:
    """Passages that were embedded before the index was locked.

    Attributes:
      generation: of the corpus from which their texts were read.
      ids: of the passages.
      vectors: of each.
      segments: names of published segments of further passages.
      in_segments: ids of these.
      merged: names of segments whose visible rows are in `segments`.
    """

    generation: int
    ids: Int64[np.ndarray, "R"]
    vectors: Float32[np.ndarray, "R E"]
    segments: tuple[str, ...] = ()
    in_segments: Int64[np.ndarray, "S"] = field(default_factory=lambda: np.empty(0, np.int64))
    merged: tuple[str, ...] = ()


@contextlib.contextmanager
def one_writer(run: RunDir) -> Iterator[None]:
    """Excludes other processes of this machine from publishing index updates of a run.

    Without locks of the file system, `publish_update` refuses a writer that was overtaken before it
    publishes.
    """
    if not files.is_local(run.index_updates):
        warn_without_flock(run.index_updates, _ADVICE)
        yield
        return
    run.index_updates.mkdir(parents=True, exist_ok=True)
    with exclusive(Path(run.index_updates / _LOCK), _WAITING, _ADVICE):
        yield


def extend(
    run: RunDir,
    current: CurrentIndex,
    done: Embedded,
    embed: Embed,
    still_allowed: Callable[[], None] = lambda: None,
) -> CurrentIndex:
    """Publishes an index update for the newest generation of the corpus, and opens it.

    Other writers may have published updates since `current` was opened: theirs are kept. Publishes
    nothing if the newest update covers the newest generation, and `done` has merged nothing.

    Args:
      run: the run folder.
      current: the index as it was opened.
      done: what was embedded without the lock.
      embed: embeds the rest: passages that changed meanwhile.
      still_allowed: see `commit.publish`.
    """
    with one_writer(run):
        step, newest = current.base.step, newest_number(run)
        current = open_current(run, step, current.store.newest(), before=current)
        if current.store.corpus_hash == current.corpus_hash and not done.merged:
            return current
        update = _update(run, current, done, embed)
        still_allowed()
        publish_update(run, update, newest)
        delete_outdated(run, _KEEP)
        return open_current(run, step, current.store, before=current)


def _update(run: RunDir, current: CurrentIndex, done: Embedded, embed: Embed) -> IndexUpdate:
    store = current.store
    outdated = store.changed_since(done.generation)
    changed = np.union1d(current.pending, outdated)
    covered = np.setdiff1d(done.in_segments, outdated)
    missing = np.setdiff1d(changed[store.is_live(changed)], covered)
    candidates = np.union1d(current.removed, changed)
    update = IndexUpdate(
        index_step=current.base.step,
        corpus_hash=store.corpus_hash,
        generation=store.generation,
        passages=store.passages(),
        segments=(*_without(current.names, done.merged), *done.segments),
        removed=candidates[~store.is_live(candidates)],
    )
    if not len(missing):
        return update
    vectors, parts = _vectors(store, missing, done, outdated, embed), []
    if not done.segments:
        parts = to_merge(visible_parts(current), len(missing), SMALL)
    rows, vectors = merged(parts, missing, vectors)
    name = publish_segment(run, current.base.step, ExactSearcher(vectors), rows, vectors)
    kept = _without(update.segments, [part.segment.name for part in parts])
    return replace(update, segments=(*kept, name))


def _without(names: Sequence[str], dropped: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in dropped)


def _vectors(
    store: PassageStore,
    ids: Int64[np.ndarray, "M"],
    done: Embedded,
    outdated: Int64[np.ndarray, "O"],
    embed: Embed,
) -> Float32[np.ndarray, "M E"]:
    """Vectors of passages: those that were embedded and have not changed since, or new ones."""
    usable = ~np.isin(done.ids, outdated)
    known, at = done.ids[usable], np.flatnonzero(usable)
    is_known = np.isin(ids, known)
    rest = ids[~is_known]
    out = np.empty((len(ids), done.vectors.shape[1]), np.float32)
    order = np.argsort(known)
    out[is_known] = done.vectors[at[order[np.searchsorted(known[order], ids[is_known])]]]
    if len(rest):
        out[~is_known] = embed(store, rest)
    return out


def delete_outdated(run: RunDir, keep: int) -> None:
    """Deletes old updates, unless they are leased, and the segments that only they list.

    Call it with the lock of `one_writer`.
    """
    before = segments_of_updates(run)
    deleted = set(retain(run, INDEX_UPDATES, keep))
    kept = {name for number, names in before.items() if number not in deleted for name in names}
    unlisted = {name for number in deleted for name in before.get(number, ())} - kept - {BASE}
    delete_segments(run, sorted(unlisted))
