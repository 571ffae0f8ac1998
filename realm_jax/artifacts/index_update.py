"""Index updates: lists of segments that follow a published index, as its corpus grows.

A published index and a segment are never changed. `W/index_updates/NUMBER` lists what is searched
together from then on, oldest first. Of several vectors of a passage, the newest counts. Segments
that an update shares with the one before are listed again, not copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int64

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.artifacts.segments import Segment
from realm_jax.corpus.concatenated import Concatenated
from realm_jax.retrieval.searcher import LocalSearcher
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.commit import OvertakenError
from realm_jax.storage.layout import RunDir, step_name

KIND = "index_update"
BASE = "published_index"  # in a list of segments: the published index itself
REMOVED = "removed.npy"
_FIELDS: dict[str, Any] = {
    "index_step": int,
    "corpus_hash": str,
    "generation": int,
    "passages": int,
    "segments": list,
}


@dataclass(frozen=True)
class IndexUpdate:
    """What is searched for one generation of a corpus.

    Attributes:
      index_step: of the published index.
      corpus_hash: of the generation.
      generation: its number.
      passages: number of its passages.
      segments: names, oldest first; `BASE` is the published index.
      removed: ids, ascending, whose vectors are in a segment and must not be found.
      number: of the update; 0: not published.
    """

    index_step: int
    corpus_hash: str
    generation: int
    passages: int
    segments: tuple[str, ...]
    removed: Int64[np.ndarray, "R"]
    number: int = 0


def newest_number(run: RunDir) -> int:
    """The highest number of a published update; 0 if there is none.

    It can be higher than that of `newest_update`: a writer that was killed may not have moved the
    pointer.
    """
    return max(commit.steps(run.index_updates), default=0)


def publish_update(run: RunDir, update: IndexUpdate, after: int) -> IndexUpdate:
    """Publishes an update under the next number; returns it with that number.

    Call it with the lock of `index_writer.one_writer`.

    Args:
      run: the run folder.
      update: the update.
      after: `newest_number` before the index was opened from which the update was made.

    Raises:
      OvertakenError: another process published an update meanwhile.
    """

    def write(folder: epath.Path) -> None:
        files.write_array(folder / REMOVED, update.removed)

    number, newest = after + 1, newest_number(run)
    fields = {name: getattr(update, name) for name in _FIELDS}
    fields["segments"] = list(update.segments)
    if newest > after or not commit.publish(
        run.index_updates, number, write, {"kind": KIND, **fields}
    ):
        raise OvertakenError(
            "another process published an index update meanwhile",
            where=run.index_updates,
            expected=f"no update after number {after}",
            found=f"number {max(newest, number)}",
            fix="run the same command again",
        )
    return replace(update, number=number)


def read_update(run: RunDir, number: int) -> IndexUpdate:
    """Reads an update after it has verified every byte; raises as `integrity.verified`."""
    folder = run.index_updates / step_name(number)
    with integrity.verified(folder, KIND, **_FIELDS) as (copy, manifest):
        fields = {name: manifest[name] for name in _FIELDS}
        fields["segments"] = tuple(manifest["segments"])
        return IndexUpdate(**fields, removed=np.load(Path(copy / REMOVED)), number=number)


def newest_update(run: RunDir, index_step: int) -> IndexUpdate | None:
    """The newest update of a published index; None if there is none.

    Raises:
      DamageError: it is damaged.
      NotPublishedError: it was deleted during the call; a newer one exists.
    """
    number = commit.latest(run.index_updates)
    if number is None:
        return None
    update = read_update(run, number)
    return update if update.index_step == index_step else None


def segments_of_updates(run: RunDir) -> dict[int, tuple[str, ...]]:
    """Number of each published update -> the segments that it lists; without damaged updates."""
    manifests = {
        number: commit.read_manifest(run.index_updates / step_name(number), **_FIELDS)
        for number in commit.steps(run.index_updates)
    }
    return {number: tuple(one["segments"]) for number, one in manifests.items() if one}


def listed_segments(run: RunDir) -> set[str]:
    """Names of the segments that a published update lists."""
    return {name for names in segments_of_updates(run).values() for name in names} - {BASE}


def update_of(base: PublishedIndex) -> IndexUpdate:
    """A published index as an update that lists nothing else; it is not published."""
    return IndexUpdate(
        index_step=base.step,
        corpus_hash=base.manifest["corpus_hash"],
        generation=base.manifest.get("generation", 1),
        passages=base.searcher.size,
        segments=(BASE,),
        removed=np.empty(0, np.int64),
    )


def base_segment(base: PublishedIndex) -> Segment:
    """A published index as the first segment of an update."""
    assert isinstance(base.searcher, LocalSearcher)
    return Segment(BASE, base.searcher, base.rows, base.vectors)


def join(base: PublishedIndex, update: IndexUpdate, segments: Sequence[Segment]) -> PublishedIndex:
    """One index that searches the segments of an update.

    Args:
      base: the published index, whose parameters embed queries and passages.
      update: the update.
      segments: those that it lists, in its order.
    """
    hidden = hidden_rows([segment.rows for segment in segments], update.removed)
    if len(segments) == 1 and not len(hidden):
        return base
    searcher = SegmentedSearcher([segment.searcher for segment in segments], hidden)
    named = ("corpus_hash", "generation", "passages")
    return replace(
        base,
        searcher=searcher,
        rows=np.concatenate([segment.rows for segment in segments]),
        vectors=Concatenated([segment.vectors for segment in segments]),
        hidden=hidden,
        manifest={**base.manifest, **{name: getattr(update, name) for name in named}},
    )


def hidden_rows(
    rows: Sequence[Int64[np.ndarray, "_"]], removed: Int64[np.ndarray, "R"]
) -> Int64[np.ndarray, "H"]:
    """Rows, over all segments, of removed passages and of those with a vector in a later segment.

    Args:
      rows: of each segment, oldest first: row -> passage id.
      removed: passage ids.
    """
    ends = np.cumsum([0, *map(len, rows)])
    later, hidden = np.unique(removed), [np.empty(0, np.int64)]
    for number in reversed(range(len(rows))):
        hidden.append(ends[number] + np.flatnonzero(np.isin(rows[number], later)))
        later = np.union1d(later, rows[number]) if number else later
    return np.sort(np.concatenate(hidden))
