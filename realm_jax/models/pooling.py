"""Pooling: the hidden vectors of a row -> one vector (as in sentence-transformers)."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Int

from realm_jax.models.whole_tiles import Block


def _sum(
    hidden: Float32[Array, "G n w H"], real: Float32[Array, "G n w"]
) -> Float32[Array, "G n H"]:
    return jnp.einsum("gnwh,gnw->gnh", hidden, real, precision=lax.Precision.HIGHEST)


def _mean(hidden: Array, mask: Bool[Array, "G n w"]) -> Float32[Array, "G n H"]:
    real = mask.astype(jnp.float32)
    return _sum(hidden, real) / jnp.maximum(real.sum(-1), 1.0)[..., None]


def _mean_sqrt_len(hidden: Array, mask: Bool[Array, "G n w"]) -> Float32[Array, "G n H"]:
    real = mask.astype(jnp.float32)
    return _sum(hidden, real) / jnp.sqrt(jnp.maximum(real.sum(-1), 1.0))[..., None]


def _max(hidden: Array, mask: Bool[Array, "G n w"]) -> Float32[Array, "G n H"]:
    return jnp.where(mask[..., None], hidden, jnp.finfo(jnp.float32).min).max(axis=2)


# Of all real tokens, [CLS] and [SEP] included. The other kinds read the vector of [CLS] only.
_POOLING: dict[str, Callable[..., Float32[Array, "G n H"]]] = {
    "mean": _mean,
    "max": _max,
    "mean_sqrt_len": _mean_sqrt_len,
}


def pool_slots(
    kind: str, hidden: Float[Array, "G T H"], blocks: Sequence[Block]
) -> Float32[Array, "G N H"]:
    """Pools each slot of packed streams (`Bert.packed`); float32, in the order of the slots.

    Args:
      kind: one of `config_checks.OVER_TOKENS`.
      hidden: hidden vectors of every token of the streams.
      blocks: the rows of the streams, grouped by width.
    """
    pooled, start = [], 0
    for _, mask, _ in blocks:
        groups, count, width = mask.shape
        part = hidden[:, start : start + count * width].astype(jnp.float32)
        pooled.append(_POOLING[kind](part.reshape(groups, count, width, -1), mask))
        start += count * width
    return jnp.concatenate(pooled, axis=1)


def slots_of(blocks: Sequence[Block], starts: Int[Array, "G N"]) -> Int[Array, "G N"]:
    """The slot of each row, from the position in its stream where the row begins."""
    first: list[int] = []
    position = 0
    for _, mask, _ in blocks:
        _, count, width = mask.shape
        first += range(position, position + count * width, width)
        position += count * width
    return jnp.searchsorted(jnp.array(first, jnp.int32), starts)
