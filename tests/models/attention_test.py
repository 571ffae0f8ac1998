"""Attention, layer norm and bias have the gradients that JAX derives from plain code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.models.attention import attend
from realm_jax.models.operations import add_bias, dropout, layer_norm

HEADS, SIZE = 2, 8
WIDTHS = ((3, 12), (2, 20))  # rows of each block, and their width


def plain_attention(query, key, value, masks, rate, drop):
    """Attention as in the paper, computed row by row."""
    out, start = [], 0
    for number, mask in enumerate(masks):
        groups, rows, width = mask.shape
        stop = start + rows * width
        q, k, v = (
            part[:, start:stop].reshape(groups * rows, width, HEADS, SIZE)
            for part in (query, key, value)
        )
        scores = jnp.einsum("rqnd,rknd->rnqk", q, k) / SIZE**0.5
        hidden = jnp.where(mask.reshape(-1, width), 0.0, -1e9)[:, None, None]
        shares = jax.nn.softmax(scores + hidden)
        shares = dropout(shares, rate, None if drop is None else jax.random.fold_in(drop, number))
        out.append(jnp.einsum("rnqk,rknd->rqnd", shares, v).reshape(groups, -1, HEADS, SIZE))
        start = stop
    return jnp.concatenate(out, axis=1)


def plain_norm(x, scale, offset):
    normed = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    return normed * scale[None, None, None] + offset[None, None, None]


@pytest.mark.parametrize(("rate", "seed"), [(0.0, None), (0.3, 5)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.bfloat16, 6e-2)])
def test_attention_and_its_gradients_equal_those_of_plain_jax(rate, seed, dtype, tolerance):
    rng = np.random.default_rng(0)
    pieces = sum(rows * width for rows, width in WIDTHS)
    operands = [jnp.asarray(rng.normal(size=(2, pieces, HEADS, SIZE)), dtype) for _ in range(3)]
    lengths = [rng.integers(0, width + 1, (2, rows, 1)) for rows, width in WIDTHS]  # 0: padding
    masks = [
        jnp.arange(width)[None, None] < own for own, (_, width) in zip(lengths, WIDTHS, strict=True)
    ]
    weights = jnp.asarray(rng.normal(size=(2, pieces, HEADS, SIZE)), jnp.float32)
    drop = None if seed is None else jax.random.key(seed)

    def run(attention, given):
        def loss(*given):
            return (attention(*given, masks, rate, drop) * weights).sum()

        return attention(*given, masks, rate, drop), *jax.grad(loss, argnums=(0, 1, 2))(*given)

    compiled = jax.jit(run, static_argnums=0)
    found = compiled(attend, operands)
    expected = compiled(plain_attention, [part.astype(jnp.float32) for part in operands])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours.astype(jnp.float32), theirs, tolerance, tolerance)


def test_layer_norm_and_bias_have_the_gradients_that_jax_derives():
    rng = np.random.default_rng(1)
    x, weights = (jnp.asarray(rng.normal(size=(2, 7, 3, 4)), jnp.float32) for _ in range(2))
    bias, (scale, offset) = (
        jnp.asarray(rng.normal(size=(3, 4)), jnp.float32),
        rng.normal(size=(2, 4)),
    )
    both = jnp.float32(scale), jnp.float32(offset)

    def gradients(norm, add):
        def loss(x, bias, *both):
            return (norm(add(x, bias), *both) * weights).sum()

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))(x, bias, *both)

    found = gradients(lambda *given: layer_norm(*given, 0.0), add_bias)
    expected = gradients(plain_norm, lambda x, bias: x + bias[None, None])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, expected
    )
