"""What the networks are made of: products, sums, layer normalisation, dropout.

On a CPU sums are products with ones: sums are what XLA does worst there (a third of a training
step, benchmarks/RESULTS.md), and products what it does best. Elsewhere products may round.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Float32, Key

LAYER_NORM_EPS = 1e-12


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def product(
    spec: str, x: Float[Array, "*left"], other: Float[Array, "*right"]
) -> Float32[Array, "*out"]:
    """einsum of two operands, multiplied in the dtype of x and summed in float32.

    So are its gradients, which JAX's own would multiply in float32 and round before they are added
    up: that of a float32 kernel is float32 from the product on, so sums over micro-batches, rows
    and devices are never rounded to bfloat16 on their way.

    Args:
      spec: two operands, every axis of which is in the other operand or in the output.
      x: float32 or bfloat16.
      other: parameters in float32, or an operand like x.
    """
    return _einsum(spec, x, other.astype(x.dtype))


def _product_forward(spec: str, x: Array, other: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(spec, x, other), (x, other)


def _product_backward(
    spec: str, kept: tuple[Array, Array], back: Float32[Array, "*out"]
) -> tuple[Array, Array]:
    (x, other), (operands, out) = kept, spec.split("->")
    left, right = operands.split(",")
    back = back.astype(x.dtype)
    of_x = _einsum(f"{out},{right}->{left}", back, other.astype(x.dtype))
    of_other = _einsum(f"{left},{out}->{right}", x, back)
    return of_x.astype(x.dtype), of_other.astype(other.dtype)


product.defvjp(_product_forward, _product_backward)


def _einsum(spec: str, *operands: Array) -> Float32[Array, "*out"]:
    return jnp.einsum(spec, *operands, preferred_element_type=jnp.float32)


def over_last(x: Float[Array, "*rows n"]) -> Float32[Array, "*rows"]:
    """Sums over the last axis."""
    return lax.platform_dependent(
        x,
        cpu=lambda x: _einsum("...h,h->...", x, jnp.ones(x.shape[-1:], x.dtype)),
        default=lambda x: x.sum(-1, dtype=jnp.float32),
    )


def over_rows(x: Float[Array, "*rows n"]) -> Float32[Array, "n"]:
    """Sums over all axes but the last."""
    return lax.platform_dependent(
        x,
        cpu=lambda x: _einsum("...,...h->h", jnp.ones(x.shape[:-1], x.dtype), x),
        default=lambda x: x.sum(tuple(range(x.ndim - 1)), dtype=jnp.float32),
    )


@jax.custom_vjp
def add_bias(
    x: Float32[Array, "*rows_and_own"], bias: Float32[Array, "*own"]
) -> Float32[Array, "*rows_and_own"]:
    """x + bias; the last axes of x are those of the bias."""
    return x + bias


def _add_bias_forward(x: Array, bias: Array) -> tuple[Array, Array]:
    return x + bias, bias


def _add_bias_backward(bias: Array, back: Array) -> tuple[Array, Array]:
    flat = back.reshape(*back.shape[: back.ndim - bias.ndim], bias.size)
    return back, over_rows(flat).reshape(bias.shape)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(
    x: Float[Array, "*rows H"],
    scale: Float32[Array, "H"],
    offset: Float32[Array, "H"],
    eps: float = LAYER_NORM_EPS,
) -> Float[Array, "*rows H"]:
    """Layer normalisation, computed in float32 whatever the dtype of `x`."""
    normed, _ = _normed(x, eps)
    return (normed * scale + offset).astype(x.dtype)


def _normed(x: Array, eps: float) -> tuple[Float32[Array, "*rows H"], Float32[Array, "*rows 1"]]:
    """Normalised, and the reciprocal of the standard deviation."""
    wide, size = x.astype(jnp.float32), x.shape[-1]
    centred = wide - over_last(wide)[..., None] / size
    scaling = lax.rsqrt(over_last(jnp.square(centred))[..., None] / size + eps)
    return centred * scaling, scaling


def _layer_norm_forward(
    x: Array, scale: Array, offset: Array, eps: float
) -> tuple[Array, tuple[Array, Array, Array]]:
    normed, scaling = _normed(x, eps)
    return (normed * scale + offset).astype(x.dtype), (normed.astype(x.dtype), scaling, scale)


def _layer_norm_backward(
    eps: float, kept: tuple[Array, Array, Array], back: Array
) -> tuple[Array, Array, Array]:
    normed, scaling, scale = kept
    size, wide = normed.shape[-1], normed.astype(jnp.float32)
    of_normed = back.astype(jnp.float32) * scale
    along = over_last(of_normed * wide)[..., None] / size
    of_x = scaling * (of_normed - over_last(of_normed)[..., None] / size - wide * along)
    of_scale = over_rows(back * normed)
    return of_x.astype(back.dtype), of_scale, over_rows(back)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


def dropout(
    x: Float[Array, "*shape"], rate: float, key: Key[Array, ""] | None
) -> Float[Array, "*shape"]:
    """Zeros a share of `x` and rescales the rest; the identity without a key."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0.0).astype(x.dtype)
