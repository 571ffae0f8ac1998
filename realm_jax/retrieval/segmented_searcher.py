"""An index of segments: each is searched, and the hits are merged by score.

Segments are searchers of any kind over consecutive rows. Their scores are comparable, because they
are inner products with the same queries.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from realm_jax.errors import DamageError, MismatchError
from realm_jax.retrieval.searcher import (
    WHOLE,
    LocalSearcher,
    Part,
    Searcher,
    ThreadedSearcher,
    check_queries,
    load_searcher,
)
from realm_jax.retrieval.searcher_files import (
    DESCRIPTION,
    SEGMENTED,
    read_description,
    segments_in,
    write_description,
)

HIDDEN = "hidden.npy"
SEGMENT = "segment_"  # and its number: name of the folder of a segment
Hits = tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]
SomeHits = tuple[Int32[np.ndarray, "B _"], Float32[np.ndarray, "B _"]]  # fewer than K
NO_ROWS: Int64[np.ndarray, "0"] = np.empty(0, np.int64)


class SegmentedSearcher:
    """Searches segments one after the other; row r of segment i follows all rows of segment i - 1.

    It is exact if its segments are.

    Args:
      segments: at least one, of the same dimension.
      hidden: index rows that are never returned.
      starts: first index row of each segment, ascending; None: they follow one another.

    Attributes:
      size: rows that can be returned: those of all segments, less the hidden ones.

    Raises:
      MismatchError: the segments have different dimensions, or a hidden row is not in the index.
    """

    kind = SEGMENTED

    def __init__(
        self,
        segments: Sequence[LocalSearcher],
        hidden: Int64[np.ndarray, "R"] = NO_ROWS,
        starts: Int64[np.ndarray, "S"] | None = None,
    ):
        sizes = np.array([segment.size for segment in segments])
        self.segments, self.hidden = tuple(segments), np.unique(hidden)
        self.starts = np.cumsum(sizes) - sizes if starts is None else starts
        self.dims = segments[0].dims
        self.bytes = sum(segment.bytes for segment in segments)
        self._check(self.hidden if starts is None else NO_ROWS, int(sizes.sum()))
        self._masks = [self._mask(number) for number in range(len(segments))]
        masked = sum(int(mask.sum()) for mask in self._masks if mask is not None)
        self.size = int(sizes.sum()) - masked

    def _check(self, hidden: Int64[np.ndarray, "R"], count: int) -> None:
        dims = sorted({segment.dims for segment in self.segments})
        if len(dims) > 1:
            raise MismatchError(
                "the segments of an index have different dimensions",
                where="SegmentedSearcher",
                expected="one dimension",
                found=dims,
                fix="build the index again",
            )
        if len(hidden) and not 0 <= hidden[0] <= hidden[-1] < count:
            raise MismatchError(
                "a hidden row is not in the index",
                where="SegmentedSearcher",
                expected=f"0 to {count - 1}",
                found=f"{hidden[0]} to {hidden[-1]}",
            )

    def _mask(self, number: int) -> Bool[np.ndarray, "N"] | None:
        """Which rows of a segment are hidden; None: no row is."""
        first, size = self.starts[number], self.segments[number].size
        begin, end = np.searchsorted(self.hidden, (first, first + size))
        if begin == end:
            return None
        mask = np.zeros(size, bool)
        mask[self.hidden[begin:end] - first] = True
        return mask

    def search(self, queries: Float32[np.ndarray, "B E"], k: int) -> Hits:
        """See `Searcher.search`; in a tie, the lower row is first."""
        check_queries(self, queries, k)
        found = []
        for segment, mask, start in zip(self.segments, self._masks, self.starts, strict=True):
            rows, scores = _search_visible(segment, mask, queries, k)
            found.append((rows + np.int32(start), scores))
        return merge_hits(found, k)

    def widen(self) -> bool:
        """See `LocalSearcher.widen`: every segment is searched wider."""
        widened = [segment.widen() for segment in self.segments]
        return any(widened)

    def restart_threads(self) -> None:
        """See `ThreadedSearcher.restart_threads`."""
        for segment in self.segments:
            if isinstance(segment, ThreadedSearcher):
                segment.restart_threads()

    def save(self, folder: Path) -> None:
        """Writes each segment into a folder of its own, the hidden rows and `searcher.json`."""
        folders = segment_folders(folder, len(self.segments))
        for to, segment in zip(folders, self.segments, strict=True):
            to.mkdir(exist_ok=True)
            segment.save(to)
        np.save(folder / HIDDEN, self.hidden)
        described = [{"kind": segment.kind, "size": segment.size} for segment in self.segments]
        write_description(folder, self, segments=described)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None, part: Part = WHOLE) -> "SegmentedSearcher":
        """Loads the segments of a part; their rows are those of the whole index."""
        description = read_description(folder)
        sizes = np.array([size for _, size in segments_in(description, folder)])
        hidden, folders = _read_hidden(folder), segment_folders(folder, len(sizes))
        _check_sizes(folder, description["size"], int(sizes.sum()) - len(hidden))
        own = np.arange(part.first, len(sizes), part.every)
        segments = [load_searcher(folders[number], mesh) for number in own]
        for number, segment in zip(own, segments, strict=True):
            _check_sizes(folders[number], int(sizes[number]), segment.size)
        return cls(segments, hidden, (np.cumsum(sizes) - sizes)[own])


def segment_folders(folder: Path, count: int) -> list[Path]:
    """The folders into which a segmented searcher with `count` segments is saved."""
    return [folder / f"{SEGMENT}{number:05d}" for number in range(count)]


def merge_hits(found: Sequence[SomeHits], k: int) -> SomeHits:
    """The k hits with the largest scores; in a tie, the lower row is first.

    Args:
      found: rows and scores.
      k: cut to the number of hits.
    """
    rows, scores = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    order = np.lexsort((rows, -scores))[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)


def _search_visible(
    segment: Searcher,
    hidden: Bool[np.ndarray, "N"] | None,
    queries: Float32[np.ndarray, "B E"],
    k: int,
) -> SomeHits:
    """The k best rows of a segment that are not hidden; fewer if it has fewer.

    Hidden rows take the place of hits. Queries that have too few hits left are searched again with
    a larger k, so the hits of a query do not depend on the other queries.
    """
    if hidden is None:
        return segment.search(queries, min(k, segment.size))
    count = int(hidden.sum())
    k = min(k, segment.size - count)
    rows, scores = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
    left, asked = np.arange(len(queries) if k else 0), k
    while len(left):
        found, of_found = segment.search(queries[left], asked)
        order = np.argsort(hidden[found], axis=1, kind="stable")[:, :k]
        done = (~hidden[found]).sum(axis=1) >= k
        rows[left[done]] = np.take_along_axis(found, order, 1)[done]
        scores[left[done]] = np.take_along_axis(of_found, order, 1)[done]
        left, asked = left[~done], min(4 * asked, k + count)
    return rows, scores


def _check_sizes(folder: Path, expected: int, found: int) -> None:
    if found != expected:
        raise DamageError(
            "the segments do not match the description of the index",
            where=folder / DESCRIPTION,
            expected=f"{expected} rows",
            found=f"{found} rows",
        )


def _read_hidden(folder: Path) -> Int64[np.ndarray, "R"]:
    path = folder / HIDDEN
    try:
        hidden: np.ndarray = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise DamageError(
            "the hidden rows cannot be read", where=path, expected="int64 rows", found=error
        ) from error
    return hidden
