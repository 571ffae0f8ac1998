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
    DESCRIPTION,
    SEGMENTED,
    LocalSearcher,
    Searcher,
    ThreadedSearcher,
    check_queries,
    load_searcher,
    read_description,
    saved_segments,
    segment_folders,
    write_description,
)

HIDDEN = "hidden.npy"
Hits = tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]
SomeHits = tuple[Int32[np.ndarray, "B _"], Float32[np.ndarray, "B _"]]  # fewer than K
NO_ROWS: Int64[np.ndarray, "0"] = np.empty(0, np.int64)


class SegmentedSearcher:
    """Searches segments one after the other; row r of segment i follows all rows of segment i - 1.

    It is exact if its segments are.

    Args:
      segments: at least one, of the same dimension.
      hidden: index rows that are never returned.

    Attributes:
      size: rows that can be returned: those of all segments, less the hidden ones.

    Raises:
      MismatchError: the segments have different dimensions, or a hidden row is not in the index.
    """

    kind = SEGMENTED

    def __init__(self, segments: Sequence[LocalSearcher], hidden: Int64[np.ndarray, "R"] = NO_ROWS):
        self.segments, self.hidden = tuple(segments), np.unique(hidden)
        self.starts = np.cumsum([0, *(segment.size for segment in segments)])
        self.dims = segments[0].dims
        self._check()
        self.size = int(self.starts[-1]) - len(self.hidden)
        self.bytes = sum(segment.bytes for segment in segments)
        self._masks = [self._mask(number) for number in range(len(segments))]

    def _check(self) -> None:
        dims = sorted({segment.dims for segment in self.segments})
        if len(dims) > 1:
            raise MismatchError(
                "the segments of an index have different dimensions",
                where="SegmentedSearcher",
                expected="one dimension",
                found=dims,
                fix="build the index again",
            )
        count = int(self.starts[-1])
        if len(self.hidden) and not 0 <= self.hidden[0] <= self.hidden[-1] < count:
            raise MismatchError(
                "a hidden row is not in the index",
                where="SegmentedSearcher",
                expected=f"0 to {count - 1}",
                found=f"{self.hidden[0]} to {self.hidden[-1]}",
            )

    def _mask(self, number: int) -> Bool[np.ndarray, "N"] | None:
        """Which rows of a segment are hidden; None: no row is."""
        first, end = self.starts[number : number + 2]
        rows = self.hidden[np.searchsorted(self.hidden, first) :]
        rows = rows[: np.searchsorted(rows, end)]
        if not len(rows):
            return None
        mask = np.zeros(end - first, bool)
        mask[rows - first] = True
        return mask

    def search(self, queries: Float32[np.ndarray, "B E"], k: int) -> Hits:
        """See `Searcher.search`; in a tie, the lower segment is first."""
        check_queries(self, queries, k)
        found = []
        for segment, mask, start in zip(self.segments, self._masks, self.starts, strict=False):
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
            to.mkdir()
            segment.save(to)
        np.save(folder / HIDDEN, self.hidden)
        write_description(folder, self, segments=len(self.segments))

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "SegmentedSearcher":
        """Loads all segments."""
        description = read_description(folder)
        segments = [load_searcher(one, mesh) for one in saved_segments(folder)]
        searcher = cls(segments, _read_hidden(folder))
        if (searcher.size, searcher.dims) != (description["size"], description["dims"]):
            raise DamageError(
                "the segments do not match the description of the index",
                where=folder / DESCRIPTION,
                expected=f"{description['size']} rows of {description['dims']}",
                found=f"{searcher.size} rows of {searcher.dims}",
            )
        return searcher


def merge_hits(found: Sequence[SomeHits], k: int) -> SomeHits:
    """The k hits with the largest scores; in a tie, those of the earlier element are first.

    Args:
      found: rows and scores, each best first.
      k: cut to the number of hits.
    """
    rows, scores = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
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


def _read_hidden(folder: Path) -> Int64[np.ndarray, "R"]:
    path = folder / HIDDEN
    try:
        hidden: np.ndarray = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise DamageError(
            "the hidden rows cannot be read", where=path, expected="int64 rows", found=error
        ) from error
    return hidden
