"""Multi-head self-attention within each row, with a hand-written backward pass.

The backward pass reads the [L, L] score array as few times as possible, as FlashAttention does.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Key

from realm_jax.models.operations import dropout, over_last, product

_PADDING_SCORE = -1e9  # finite, so that a row of padding only gives no NaN


def attend(
    query: Float[Array, "G T n d"],
    key: Float[Array, "G T n d"],
    value: Float[Array, "G T n d"],
    masks: Sequence[Bool[Array, "G _ _"]],
    rate: float,
    drop: Key[Array, ""] | None,
) -> Float[Array, "G T n d"]:
    """Self-attention among the real tokens of each row, with n heads of size d.

    Args:
      query: queries of G packed streams of T positions; a stream is the rows of all blocks
        concatenated (see `Bert.packed`).
      key: keys, same layout.
      value: values, same layout.
      masks: one mask [G, rows, width] per block; True on real tokens.
      rate: dropout rate of the attention weights.
      drop: random key of dropout; None in evaluation.
    """
    mixed, start = [], 0
    for number, mask in enumerate(masks):
        groups, rows, width = mask.shape
        stop, shape = start + rows * width, (groups * rows, width, *query.shape[2:])
        q, k, v = (part[:, start:stop].reshape(shape) for part in (query, key, value))
        block_drop = None if drop is None else jax.random.fold_in(drop, number)
        out = _attend_rows(rate, q, k, v, mask.reshape(shape[:2]), block_drop)
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
    """Scales the queries and normalises the output: d numbers per token instead of L scores."""
    bias = jnp.where(mask, 0.0, _PADDING_SCORE)[:, None, None, :].astype(jnp.float32)
    query = (query * query.shape[-1] ** -0.5).astype(query.dtype)
    scores = product("rqnd,rknd->rnqk", query, key) + bias
    weights = jnp.exp(scores - scores.max(-1, keepdims=True)).astype(query.dtype)
    inverse_sum = 1.0 / _per_token(over_last(weights))
    mixed = product("rnqk,rknd->rqnd", dropout(weights, rate, drop), value) * inverse_sum
    mixed = mixed.astype(query.dtype)
    return mixed, (query, key, value, weights, inverse_sum, mixed, drop)


def _backward(rate: float, saved: Any, grad_out: Array) -> tuple[Array | None, ...]:
    """Gradients as in FlashAttention (Dao et al., 2022, appendix B), with stored weights."""
    query, key, value, weights, inverse_sum, mixed, drop = saved
    dtype, scaling = query.dtype, query.shape[-1] ** -0.5  # the stored query is already scaled
    grad_out = (grad_out * inverse_sum).astype(dtype)
    grad_value = product("rnqk,rqnd->rknd", dropout(weights, rate, drop), grad_out)
    grad_weights = dropout(product("rqnd,rknd->rnqk", grad_out, value), rate, drop)
    common = over_last(grad_out.astype(jnp.float32) * mixed.astype(jnp.float32))
    grad_scores = (weights * (grad_weights - common.transpose(0, 2, 1)[..., None])).astype(dtype)
    grad_query = product("rnqk,rknd->rqnd", grad_scores, key) * scaling
    grad_key = product("rnqk,rqnd->rknd", grad_scores, query)
    return grad_query.astype(dtype), grad_key.astype(dtype), grad_value.astype(dtype), None, None


def _per_token(x: Float32[Array, "R n L"]) -> Float32[Array, "R L n 1"]:
    return x.transpose(0, 2, 1)[..., None]


_attend_rows.defvjp(_forward, _backward)
