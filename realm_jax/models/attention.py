"""Multi-head self-attention within each row, by platform (`config.model.attention`).

`xla`: plain JAX with a hand-written backward pass, which reads the [L, L] score array as few times
as possible, as FlashAttention does. `pallas`: a TPU kernel without score arrays in device memory
(`models.fused_attention`); on other platforms it is interpreted, which is slow and for tests.
`cudnn`: cuDNN's fused attention. `auto`: `pallas` on TPUs, `xla` elsewhere.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Key

from realm_jax.errors import ConfigError
from realm_jax.models import fused_attention
from realm_jax.models.operations import add_bias, dropout, over_last, product
from realm_jax.models.whole_tiles import TILE

_BY_PLATFORM = {"tpu": "pallas"}  # `auto`; `xla` elsewhere
_GPUS = ("gpu", "cuda")
_TILES = {"pallas": TILE, "cudnn": 2}  # word pieces; row widths become multiples of them
_PROJECTIONS = ("query", "key", "value")
_PADDING_SCORE = -1e9  # finite, so that a row of padding only gives no NaN


def self_attention(
    x: Float[Array, "G T H"],
    w: dict[str, Array],
    masks: Sequence[Bool[Array, "G _ _"]],
    kind: str,
    rate: float,
    drop: Key[Array, ""] | None,
) -> Float[Array, "G T *F"]:
    """Projects hidden vectors to n heads of size d, and mixes the values.

    Args:
      x: G packed streams of T positions (see `Bert.packed`).
      w: kernels [H, n, d] and biases [n, d] of a layer.
      masks: one mask [G, rows, width] per block; True on real tokens. Widths are whole tiles
        (`row_tile`).
      kind: `config.model.attention`.
      rate: dropout rate of the attention weights.
      drop: random key of dropout; None in evaluation.

    Returns:
      [G, T, n, d], or [G, T, n d] of the kernel, whose heads lie side by side.

    Raises:
      ConfigError: `cudnn` without a GPU, in float32, or with dropout.
    """
    kind, rate = chosen(kind), 0.0 if drop is None else rate
    if kind == "pallas":
        return _fused(x, w, masks, rate, drop)
    query, key, value = (_projected(x, w, name) for name in _PROJECTIONS)
    by_kind = _cudnn if kind == "cudnn" else attend
    return by_kind(query, key, value, masks, rate, drop)


def project_mixed(
    mixed: Float[Array, "G N *F"], kernel: Float[Array, "n d H"]
) -> Float32[Array, "G N H"]:
    """The output projection of `self_attention`."""
    axes = "nd" if mixed.ndim == 4 else "f"
    return product(f"rq{axes},{axes}h->rqh", mixed, kernel.reshape(*mixed.shape[2:], -1))


def chosen(kind: str) -> str:
    """The kind of attention that `config.model.attention` means for the traced program."""
    return _BY_PLATFORM.get(_platform(), "xla") if kind == "auto" else kind


def row_tile(kind: str) -> int:
    """Row widths must be multiples of this, in word pieces.

    The TPU kernel reads tiles of bfloat16; cuDNN's backward pass refuses odd widths.
    """
    return _TILES.get(chosen(kind), 1)


def _platform() -> str:
    """Platform of the devices for which the program is traced; they may not be of this machine."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def _projected(x: Array, w: dict[str, Array], name: str) -> Float[Array, "G T n d"]:
    out = product("rlh,hnd->rlnd", x, w[f"{name}_kernel"])
    return add_bias(out, w[f"{name}_bias"]).astype(x.dtype)


def _fused(
    x: Array, w: dict[str, Array], masks: Sequence[Array], rate: float, drop: Array | None
) -> Float[Array, "G T F"]:
    """One product for queries, keys and values, so that x is read once; then the kernel."""
    heads, size = w["query_bias"].shape
    kernel = jnp.stack(
        [w[f"{name}_kernel"].reshape(len(w[f"{name}_kernel"]), -1) for name in _PROJECTIONS]
    )
    bias = jnp.stack([w[f"{name}_bias"].reshape(-1) for name in _PROJECTIONS])
    projected = jax.vmap(add_bias)(product("gth,chf->cgtf", x, kernel), bias).astype(x.dtype)
    form = fused_attention.Form(size, rate, interpret=_platform() != "tpu")
    seeds = fused_attention.draw_seeds(drop, masks, heads)
    return fused_attention.attend_on_mesh(form, projected, masks, seeds)


def _cudnn(
    query: Array,
    key: Array,
    value: Array,
    masks: Sequence[Array],
    rate: float,
    drop: Array | None,
) -> Float[Array, "G T n d"]:
    """cuDNN's attention for each block; JAX offers it without dropout.

    cuDNN gets the length of each row instead of its mask: real tokens come first. It takes no
    empty row, so a row of padding attends to its first position. It needs rows of even width.
    """
    if rate or _platform() not in _GPUS or query.dtype != jnp.bfloat16:
        raise ConfigError(
            "cuDNN's attention does not serve this program",
            where="config.model.attention",
            expected="a GPU, model.compute=bfloat16, and model.dropout=0 in training",
            found=f"platform {_platform()}, {query.dtype}, dropout rate {rate}",
            fix="--config.model.attention=xla",
        )

    def of_rows(q: Array, k: Array, v: Array, mask: Array, _: Array | None) -> Array:
        lengths = jnp.maximum(mask.sum(-1, dtype=jnp.int32), 1)
        everywhere = jnp.full_like(lengths, q.shape[1])
        return jax.nn.dot_product_attention(
            q,
            k,
            v,
            query_seq_lengths=everywhere,
            key_value_seq_lengths=lengths,
            implementation="cudnn",
        )

    return _by_block(of_rows, query, key, value, masks, None)


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
    return _by_block(partial(_attend_rows, rate), query, key, value, masks, drop)


def _by_block(
    of_rows: Callable[..., Array],
    query: Array,
    key: Array,
    value: Array,
    masks: Sequence[Array],
    drop: Array | None,
) -> Float[Array, "G T n d"]:
    """Calls `of_rows(query, key, value, mask, key of dropout)` for the rows of each block."""
    mixed, start = [], 0
    for number, mask in enumerate(masks):
        groups, rows, width = mask.shape
        stop, shape = start + rows * width, (groups * rows, width, *query.shape[2:])
        q, k, v = (part[:, start:stop].reshape(shape) for part in (query, key, value))
        block_drop = None if drop is None else jax.random.fold_in(drop, number)
        out = of_rows(q, k, v, mask.reshape(shape[:2]), block_drop)
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
