"""Attention among the pieces of each row, with gradients that pass over its scores seldom."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Key

from realm_jax.models.operations import dropout, over_last, product

_NO_ATTENTION = -1e9  # finite, so that a row of nothing but padding stays finite


def attend(
    query: Float[Array, "G T n d"],
    key: Float[Array, "G T n d"],
    value: Float[Array, "G T n d"],
    masks: Sequence[Bool[Array, "G _ _"]],
    rate: float,
    drop: Key[Array, ""] | None,
) -> Float[Array, "G T n d"]:
    """Attention among the real pieces of each row, by n heads of size d.

    Args:
      query: of streams, which are the rows of `masks` end to end.
      key: like it.
      value: like it.
      masks: of each block of rows [G, n, w], true on real pieces.
      rate: of dropout.
      drop: its key.
    """
    mixed, start = [], 0
    for number, mask in enumerate(masks):
        groups, rows, width = mask.shape
        stop, own = start + rows * width, (groups * rows, width, *query.shape[2:])
        q, k, v = (part[:, start:stop].reshape(own) for part in (query, key, value))
        block_drop = None if drop is None else jax.random.fold_in(drop, number)
        out = _attend_rows(rate, q, k, v, mask.reshape(own[:2]), block_drop)
        mixed.append(out.reshape(groups, rows * width, *query.shape[2:]))
        start = stop
    return jnp.concatenate(mixed, axis=1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend_rows(
    rate: float,
    query: Float[Array, "R L n d"],
    key: Float[Array, "R L n d"],
    value: Float[Array, "R L n d"],
    mask: Bool[Array, "R L"],
    drop: Key[Array, ""] | None,
) -> Float[Array, "R L n d"]:
    return _forward(rate, query, key, value, mask, drop)[0]


def _forward(
    rate: float, query: Array, key: Array, value: Array, mask: Array, drop: Array | None
) -> tuple[Array, tuple[Array | None, ...]]:
    """Queries are scaled before, and sums divided after: d numbers a piece and not L."""
    hidden = jnp.where(mask, 0.0, _NO_ATTENTION)[:, None, None, :].astype(jnp.float32)
    query = (query * query.shape[-1] ** -0.5).astype(query.dtype)
    scores = product("rqnd,rknd->rnqk", query, key) + hidden
    weights = jnp.exp(scores - scores.max(-1, keepdims=True)).astype(query.dtype)
    share = 1.0 / _by_piece(over_last(weights))
    mixed = product("rnqk,rknd->rqnd", dropout(weights, rate, drop), value) * share
    mixed = mixed.astype(query.dtype)
    return mixed, (query, key, value, weights, share, mixed, drop)


def _backward(rate: float, kept: Any, back: Array) -> tuple[Array | None, ...]:
    """As in FlashAttention (Dao et al., 2022, appendix B), but the weights are kept."""
    query, key, value, weights, share, mixed, drop = kept
    dtype, scaling = query.dtype, query.shape[-1] ** -0.5  # which `query` has in it
    back = (back * share).astype(dtype)
    of_value = product("rnqk,rqnd->rknd", dropout(weights, rate, drop), back)
    of_weights = dropout(product("rqnd,rknd->rnqk", back, value), rate, drop)
    common = over_last(back.astype(jnp.float32) * mixed.astype(jnp.float32))
    of_scores = (weights * (of_weights - common.transpose(0, 2, 1)[..., None])).astype(dtype)
    of_query = product("rnqk,rknd->rqnd", of_scores, key) * scaling
    of_key = product("rnqk,rqnd->rknd", of_scores, query)
    return of_query.astype(dtype), of_key.astype(dtype), of_value.astype(dtype), None, None


def _by_piece(x: Float32[Array, "R n L"]) -> Float32[Array, "R L n 1"]:
    return x.transpose(0, 2, 1)[..., None]


_attend_rows.defvjp(_forward, _backward)
