"""Rows without most of their padding: slots of a few widths, laid end to end.

A batch is cut into G groups, and the rows of each are laid into the slots of a stream, longest row
into the widest slot, so no row lies on two devices. The widths are compiled into the step. So they
are not those of one batch but of a *bucket* of a make_buckets: the first holds what rows usually are, and
the last anything; a batch takes the lowest that holds it.

    lengths 7 3 9 2   widths 12 8 4 4   ->   9 . . .  7 .  3 .  2 . .   (a stream of 28 places)
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int32, Int64

from realm_jax.data.rows import Rows
from realm_jax.data.sampling import generator

Widths = tuple[int, ...]  # of the slots of a stream, widest first
_STEPS = 12  # widths are multiples of so-manieth of the widest, and those of 8
_DIFFERENT = 4  # widths in a stream: each is compiled by itself
_SHARES = (0.9, 1.0)  # of the groups looked at whose n-th row the n-th slot holds, by bucket
_DRAWS = 256  # groups
SAMPLE_QUERIES = 128  # queries from which the usual lengths are taken


class Packed(NamedTuple):
    """G streams of N rows each; a stream is its blocks end to end, each as its slots end to end."""

    blocks: tuple[Rows, ...]  # [G, n, w]: n slots of width w; all n together are N
    starts: Int32[Any, "G N"]  # the place in the stream at which row n begins


def make_buckets(most: list[int], seen: Int[np.ndarray, "S N"] | None = None) -> tuple[Widths, ...]:
    """Widths by bucket; each bucket holds what the one before holds.

    Args:
      most: the longest that each of the N rows of a group can be, in any order.
      seen: lengths of the rows of some groups; without any, the last bucket is the only one.
    """
    limits = np.sort(most)[::-1]
    step = max(8, limits[0] // _STEPS // 8 * 8)
    buckets = []
    if seen is not None:
        ranked = np.sort(seen, axis=1)[:, ::-1]
        usual = (np.quantile(ranked, share, axis=0, method="higher") for share in _SHARES)
        buckets = [np.minimum(-(-widths // step) * step, limits) for widths in usual]
    return tuple(_few(bucket) for bucket in [*buckets, limits])


def sample_groups(lengths: Int[np.ndarray, "B n"], size: int) -> Int[np.ndarray, "S N"]:
    """Lengths of groups of `size` queries drawn from B, each with its n rows; always the same."""
    drawn = generator(0, "groups").integers(len(lengths), size=(_DRAWS, size))
    return lengths[drawn].reshape(_DRAWS, -1)


def bucket_for(lengths: Int[np.ndarray, "G N"], buckets: tuple[Widths, ...]) -> int:
    """The lowest bucket whose slots hold the rows of every group."""
    longest = np.sort(lengths, axis=1)[:, ::-1].max(0)
    return next(bucket for bucket, widths in enumerate(buckets) if (longest <= widths).all())


def pack(parts: list[Rows], widths: Widths) -> Packed:
    """Rows [G, n_i, L_i] as streams; row numbers go on from one part to the next."""
    longest = max(part.ids.shape[-1] for part in parts)
    ids, mask, segments = (
        np.concatenate([_widened(part, longest) for part in kind], axis=1)
        for kind in zip(*parts, strict=True)
    )
    order = np.argsort(-mask.sum(-1), axis=1, kind="stable")
    blocks, starts, place = [], np.zeros(order.shape, np.int32), 0
    for width in sorted(set(widths), reverse=True):
        slots = order[:, [slot for slot, own in enumerate(widths) if own == width]]
        chosen = (np.take_along_axis(kind, slots[:, :, None], 1) for kind in (ids, mask, segments))
        blocks.append(Rows(*(kind[:, :, :width] for kind in chosen)))
        at = place + width * np.arange(slots.shape[1], dtype=np.int32)
        np.put_along_axis(starts, slots, np.broadcast_to(at, slots.shape), axis=1)
        place += width * slots.shape[1]
    return Packed(tuple(blocks), starts)


def grouped(rows: Rows, groups: int) -> Rows:
    """Rows [B, ..., L] of queries as [G, b ..., L]."""
    return Rows(*(part.reshape(groups, -1, part.shape[-1]) for part in rows))


def lengths_of(parts: list[Rows]) -> Int64[np.ndarray, "G N"]:
    """Pieces of each row."""
    return np.concatenate([part.mask.sum(-1) for part in parts], axis=1)


def _widened(part: np.ndarray, width: int) -> np.ndarray:
    return np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[-1])))


def _few(widths: np.ndarray) -> Widths:
    """Some slots made wider, so that few widths differ; what costs the fewest places."""
    found = sorted({int(width) for width in widths})
    others = combinations(found[:-1], min(_DIFFERENT, len(found)) - 1)
    levels = (np.array([*some, found[-1]]) for some in others)
    fitted = (level[np.searchsorted(level, widths)] for level in levels)
    return tuple(min(fitted, key=lambda some: some.sum()).tolist())
