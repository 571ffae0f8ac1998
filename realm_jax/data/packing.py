"""Packs rows of different lengths into streams with little padding.

A batch is split into G groups. The rows of a group are placed in the slots of one stream, the
longest row in the widest slot, so no row spans two devices. The slot widths are static shapes of
the compiled step. Therefore they come from a short list of *buckets*: the first bucket fits the
usual row lengths and the last fits any. A batch uses the first bucket that fits all its rows.

    lengths 7 3 9 2   widths 12 8 4 4   ->   9 . . .  7 .  3 .  2 . .   (a stream of 28 positions)
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64, Shaped

from realm_jax.data.rows import Rows
from realm_jax.data.sampling import generator

Widths = tuple[int, ...]  # of the slots of a stream, widest first
_STEPS = 12  # widths are multiples of about 1/12 of the widest, rounded to a multiple of 8
_DISTINCT_WIDTHS = 4  # in a stream; each distinct width is compiled separately
_QUANTILES = (0.9, 1.0)  # of the sampled row lengths; one bucket each
_SAMPLE_GROUPS = 256
SAMPLE_QUERIES = 128  # queries whose row lengths define the buckets


class Packed(NamedTuple):
    """G streams of N rows each. A stream is the concatenation of the slots of all blocks."""

    blocks: tuple[Rows, ...]  # [G, n, w]: n slots of width w; the n sum to N
    starts: Int32[Any, "G N"]  # position in the stream where row n begins


def make_buckets(
    most: list[int],
    seen: Int[np.ndarray, "S N"] | None = None,
    quantiles: tuple[float, ...] = _QUANTILES,
) -> tuple[Widths, ...]:
    """The slot widths of each bucket; a bucket is at least as wide as the one before.

    Args:
      most: the maximum length of each of the N rows of a group, in any order.
      seen: row lengths of S sample groups. If None, only the last bucket is returned.
      quantiles: of the sampled lengths, in ascending order; one bucket each. Each is compiled.
    """
    limits = np.sort(most)[::-1]
    step = max(8, limits[0] // _STEPS // 8 * 8)
    buckets = []
    if seen is not None:
        ranked = np.sort(seen, axis=1)[:, ::-1]
        usual = (np.quantile(ranked, share, axis=0, method="higher") for share in quantiles)
        buckets = [np.minimum(-(-widths // step) * step, limits) for widths in usual]
    found: list[Widths] = []
    for bucket in [*buckets, limits]:
        found.append(_merge_widths(np.maximum(bucket, found[-1]) if found else bucket))
    return tuple(found)


def sample_groups(lengths: Int[np.ndarray, "B n"], size: int) -> Int[np.ndarray, "S N"]:
    """Row lengths of random groups of `size` of the B queries, with n rows each; deterministic."""
    drawn = generator(0, "groups").integers(len(lengths), size=(_SAMPLE_GROUPS, size))
    return lengths[drawn].reshape(_SAMPLE_GROUPS, -1)


def bucket_for(lengths: Int[np.ndarray, "G N"], buckets: tuple[Widths, ...]) -> int:
    """The first bucket whose slots fit the rows of every group."""
    longest = np.sort(lengths, axis=1)[:, ::-1].max(0)
    return next(bucket for bucket, widths in enumerate(buckets) if (longest <= widths).all())


def pack(parts: list[Rows], widths: Widths) -> Packed:
    """Packs rows [G, n_i, L_i] into streams; rows are numbered across all parts in order.

    Raises:
      ValueError: a row is longer than its slot.
    """
    longest = max(part.ids.shape[-1] for part in parts)
    ids, mask, segments = (
        np.concatenate([_widened(part, longest) for part in kind], axis=1)
        for kind in zip(*parts, strict=True)
    )
    lengths = _extents(mask)
    order = np.argsort(-lengths, axis=1, kind="stable")
    if (np.take_along_axis(lengths, order, 1) > widths).any():
        raise ValueError(f"rows of {lengths.max(0)} tokens do not fit slots of {widths}")
    blocks, starts, position = [], np.zeros(order.shape, np.int32), 0
    for width in sorted(set(widths), reverse=True):
        slots = order[:, [slot for slot, found in enumerate(widths) if found == width]]
        chosen = (np.take_along_axis(kind, slots[:, :, None], 1) for kind in (ids, mask, segments))
        blocks.append(Rows(*(kind[:, :, :width] for kind in chosen)))
        at = position + width * np.arange(slots.shape[1], dtype=np.int32)
        np.put_along_axis(starts, slots, np.broadcast_to(at, slots.shape), axis=1)
        position += width * slots.shape[1]
    return Packed(tuple(blocks), starts)


def grouped(rows: Rows, groups: int) -> Rows:
    """Reshapes rows [B, ..., L] to [G, b ..., L]."""
    return Rows(*(part.reshape(groups, -1, part.shape[-1]) for part in rows))


def ungrouped(leaf: Shaped[Any, "G b *rest"]) -> Shaped[Any, "B *rest"]:
    """Reshapes an array [G, b, ...] to [B, ...]."""
    return leaf.reshape(-1, *leaf.shape[2:])


def lengths_of(parts: list[Rows]) -> Int64[np.ndarray, "G N"]:
    """Tokens of each row, up to its last real one."""
    return np.concatenate([_extents(part.mask) for part in parts], axis=1)


def _extents(mask: Bool[np.ndarray, "G n L"]) -> Int64[np.ndarray, "G n"]:
    """One more than the position of the last True; tokens before it may be hidden."""
    return (mask * np.arange(1, mask.shape[-1] + 1)).max(-1)


def _widened(part: np.ndarray, width: int) -> np.ndarray:
    return np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[-1])))


def _merge_widths(widths: np.ndarray) -> Widths:
    """Rounds widths up to at most `_DISTINCT_WIDTHS` values with the least additional padding."""
    found = sorted({int(width) for width in widths})
    others = combinations(found[:-1], min(_DISTINCT_WIDTHS, len(found)) - 1)
    levels = (np.array([*some, found[-1]]) for some in others)
    fitted = (level[np.searchsorted(level, widths)] for level in levels)
    return tuple(min(fitted, key=lambda some: some.sum()).tolist())
