"""Which segments of a finished run are merged, and the rows of the merged segment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int64

from realm_jax.artifacts.current_index import CurrentIndex
from realm_jax.artifacts.segments import Segment

SMALL = 16_384  # rows of the largest segment that is searched exactly


@dataclass(frozen=True, eq=False)
class Visible:
    """A segment, and those of its rows that are found: not removed, nor in a later segment."""

    segment: Segment
    at: Int64[np.ndarray, "V"]  # rows of the segment

    @property
    def ids(self) -> Int64[np.ndarray, "V"]:
        """Passage ids of the rows."""
        return self.segment.rows[self.at]

    def between(self, first: int, last: int) -> "Visible":
        """The rows of the passages `first` to `last`, both included."""
        return Visible(self.segment, self.at[(first <= self.ids) & (self.ids <= last)])


def visible_parts(current: CurrentIndex) -> list[Visible]:
    """The segments that may be merged: all but the published index, which is never changed."""
    parts, start = [], len(current.base.rows)
    for segment in current.segments[1:]:
        first, last = np.searchsorted(current.index.hidden, (start, start + len(segment.rows)))
        hidden = current.index.hidden[first:last] - start
        parts.append(Visible(segment, np.delete(np.arange(len(segment.rows)), hidden)))
        start += len(segment.rows)
    return parts


def mostly_hidden(parts: Iterable[Visible]) -> list[Visible]:
    """The segments of which more than half of the rows are hidden."""
    return [part for part in parts if 2 * len(part.at) < len(part.segment.rows)]


def to_merge(
    parts: Sequence[Visible], new: int, most: int, always: Sequence[Visible] = ()
) -> list[Visible]:
    """The segments to merge with `new` rows: `always`, and as many of the smallest as possible.

    The largest of these has at most twice the rows of all smaller ones and the new rows together,
    and the sum is at most `most`. Each segment that is left then has more than twice the rows of
    all smaller ones, until `most` is reached. So a vector is copied a logarithmic number of times,
    and the number of segments is logarithmic below `most` rows, and linear above.
    """
    chosen = list(always)
    rows, count = new + sum(len(part.at) for part in chosen), 0
    others = sorted((p for p in parts if p not in chosen), key=lambda part: len(part.at))
    for number, part in enumerate(others, start=1):
        if len(part.at) <= min(2 * rows, most - rows):
            count = number
        rows += len(part.at)
    return chosen + others[:count]


def merged(
    parts: Sequence[Visible], ids: Int64[np.ndarray, "M"], vectors: Float[np.ndarray, "M E"]
) -> tuple[Int64[np.ndarray, "R"], Float32[np.ndarray, "R E"]]:
    """Passage ids, ascending, and vectors of the visible rows of segments, and of new rows.

    Args:
      parts: of the segments; no passage is visible in two of them.
      ids: of the new rows, which replace visible ones.
      vectors: of the new rows.
    """
    kept = [Visible(part.segment, part.at[~np.isin(part.ids, ids)]) for part in parts]
    rows = np.concatenate([*(part.ids for part in kept), ids])
    order = np.argsort(rows)
    target = np.empty_like(order)
    target[order] = np.arange(len(order))
    out, start = np.empty((len(rows), vectors.shape[1]), np.float32), 0
    for part in kept:
        out[target[start : start + len(part.at)]] = part.segment.vectors[part.at]
        start += len(part.at)
    out[target[start:]] = vectors
    return rows[order], out
