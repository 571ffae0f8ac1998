"""Operations that the networks share: products, sums, layer normalisation, dropout.

On a CPU, sums are computed as products with ones. XLA's CPU reductions are slow (a third of a
training step, benchmarks/RESULTS.md) and its matrix products are fast. On other platforms a
product could round its inputs, so sums stay sums.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Float32, Key

LAYER_NORM_EPS = 1e-12


def relevance_scores(
    spec: str, queries: Float[Array, "*left"], passages: Float[Array, "*right"]
) -> Float[Array, "*out"]:
    """Inner products of query vectors and passage vectors, as an einsum in full precision.

    A TPU multiplies float32 as bfloat16 by default. Scores are large sums that a softmax subtracts
    from each other, so p(z|x) would be wrong by one per cent. Gradients have the same precision.

    Args:
      spec: einsum specification.
      queries: float32.
      passages: float32 or float16.
    """
    return jnp.einsum(spec, queries, passages, precision=lax.Precision.HIGHEST)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def product(
    spec: str, x: Float[Array, "*left"], other: Float[Array, "*right"]
) -> Float32[Array, "*out"]:
    """einsum of two operands, multiplied in the dtype of x and accumulated in float32.

    Gradients are computed the same way. The gradient of a float32 kernel is float32 from the
    product on, so sums over micro-batches, rows and devices are never rounded to bfloat16. JAX's
    default gradient would multiply in float32 and round before the sum.

    Args:
      spec: einsum specification; each axis of an operand is also in the other operand or output.
      x: float32 or bfloat16.
      other: float32 parameters, or an operand in the dtype of x.
    """
    return _einsum(spec, x, other.astype(x.dtype))


def _product_forward(spec: str, x: Array, other: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(spec, x, other), (x, other)


def _product_backward(
    spec: str, saved: tuple[Array, Array], grad_out: Float32[Array, "*out"]
) -> tuple[Array, Array]:
    (x, other), (operands, out) = saved, spec.split("->")
    left, right = operands.split(",")
    grad_out = grad_out.astype(x.dtype)
    grad_x = _einsum(f"{out},{right}->{left}", grad_out, other.astype(x.dtype))
    grad_other = _einsum(f"{left},{out}->{right}", x, grad_out)
    return grad_x.astype(x.dtype), grad_other.astype(other.dtype)


product.defvjp(_product_forward, _product_backward)


def _einsum(spec: str, *operands: Array) -> Float32[Array, "*out"]:
    return jnp.einsum(spec, *operands, preferred_element_type=jnp.float32)


def over_last(x: Float[Array, "*rows n"]) -> Float32[Array, "*rows"]:
    """Sums over the last axis, in float32."""
    return lax.platform_dependent(
        x,
        cpu=lambda x: _einsum("...h,h->...", x, jnp.ones(x.shape[-1:], x.dtype)),
        default=lambda x: x.sum(-1, dtype=jnp.float32),
    )


def over_rows(x: Float[Array, "*rows n"]) -> Float32[Array, "n"]:
    """Sums over all axes except the last, in float32."""
    return lax.platform_dependent(
        x,
        cpu=lambda x: _einsum("...,...h->h", jnp.ones(x.shape[:-1], x.dtype), x),
        default=lambda x: x.sum(tuple(range(x.ndim - 1)), dtype=jnp.float32),
    )


def over_leading_axes(x: Float[Array, "*last"], ndim: int) -> Float[Array, "*ones_and_last"]:
    """x with leading axes of size 1, so that it broadcasts against an array of `ndim` axes."""
    return x.reshape((1,) * (ndim - x.ndim) + x.shape)


@jax.custom_vjp
def add_bias(
    x: Float32[Array, "*rows_and_bias"], bias: Float32[Array, "*bias"]
) -> Float32[Array, "*rows_and_bias"]:
    """x + bias; the bias has the last axes of x. Its gradient uses `over_rows`."""
    return x + over_leading_axes(bias, x.ndim)


def _add_bias_forward(x: Array, bias: Array) -> tuple[Array, Array]:
    return x + over_leading_axes(bias, x.ndim), bias


def _add_bias_backward(bias: Array, grad_out: Array) -> tuple[Array, Array]:
    flat = grad_out.reshape(*grad_out.shape[: grad_out.ndim - bias.ndim], bias.size)
    return grad_out, over_rows(flat).reshape(bias.shape)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def gelu(x: Float[Array, "*rows n"], approximate: bool) -> Float[Array, "*rows n"]:
    """GELU, computed in float32 for any dtype of `x`; the backward pass needs `x` only.

    Args:
      x: input; the output has its dtype.
      approximate: whether to use the tanh approximation.
    """
    return jax.nn.gelu(x.astype(jnp.float32), approximate).astype(x.dtype)


def _gelu_forward(x: Array, approximate: bool) -> tuple[Array, Array]:
    return gelu(x, approximate), x


def _gelu_backward(approximate: bool, x: Array, grad_out: Array) -> tuple[Array]:
    _, of_input = jax.vjp(lambda x: jax.nn.gelu(x, approximate), x.astype(jnp.float32))
    return (of_input(grad_out.astype(jnp.float32))[0].astype(x.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(
    x: Float[Array, "*rows H"],
    scale: Float32[Array, "H"],
    offset: Float32[Array, "H"],
    eps: float = LAYER_NORM_EPS,
) -> Float[Array, "*rows H"]:
    """Layer normalisation over the last axis, computed in float32 for any dtype of `x`.

    Args:
      x: input; the output has its dtype.
      scale: learned scale.
      offset: learned offset.
      eps: added to the variance.
    """
    return _scaled(_normed(x, eps)[0], scale, offset).astype(x.dtype)


def _normed(x: Array, eps: float) -> tuple[Float32[Array, "*rows H"], Float32[Array, "*rows 1"]]:
    """The normalised input, and the reciprocal of its standard deviation."""
    x32, size = x.astype(jnp.float32), x.shape[-1]
    centred = x32 - over_last(x32)[..., None] / size
    scaling = lax.rsqrt(over_last(jnp.square(centred))[..., None] / size + eps)
    return centred * scaling, scaling


def _scaled(normed: Array, scale: Array, offset: Array) -> Float32[Array, "*rows H"]:
    ndim = normed.ndim
    return normed * over_leading_axes(scale, ndim) + over_leading_axes(offset, ndim)


def _layer_norm_forward(
    x: Array, scale: Array, offset: Array, eps: float
) -> tuple[Array, tuple[Array, Array, Array]]:
    normed, scaling = _normed(x, eps)
    out = _scaled(normed, scale, offset).astype(x.dtype)
    return out, (normed.astype(x.dtype), scaling, scale)


def _layer_norm_backward(
    eps: float, saved: tuple[Array, Array, Array], grad_out: Array
) -> tuple[Array, Array, Array]:
    normed, scaling, scale = saved
    size, normed32 = normed.shape[-1], normed.astype(jnp.float32)
    grad_normed = grad_out.astype(jnp.float32) * over_leading_axes(scale, grad_out.ndim)
    projection = over_last(grad_normed * normed32)[..., None] / size
    mean = over_last(grad_normed)[..., None] / size
    grad_x = scaling * (grad_normed - mean - normed32 * projection)
    grad_scale = over_rows(grad_out * normed)
    return grad_x.astype(grad_out.dtype), grad_scale, over_rows(grad_out)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


def dropout(
    x: Float[Array, "*shape"], rate: float, key: Key[Array, ""] | None
) -> Float[Array, "*shape"]:
    """Sets a share `rate` of `x` to zero and rescales the rest; the identity without a key."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0.0).astype(x.dtype)
