"""The TPU kernel of attention, interpreted: equal to plain JAX on one device and on a mesh."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from support.tiny_corpus import tiny_config

from realm_jax.errors import ConfigError
from realm_jax.models import bert
from realm_jax.models.attention import self_attention
from realm_jax.models.fused_attention import Form, attend_on_mesh, draw_seeds, keep
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import MESH_AXES

GROUPS, HEADS, SIZE = 2, 4, 64
WIDTHS = ((2, 32), (1, 16))  # rows of each block, and their width


def plain(form, projected, masks, seeds):
    """Attention as in the paper, with the kernel's dropout."""
    out, start = [], 0
    for mask, seed in zip(masks, seeds, strict=True):
        groups, rows, width = mask.shape
        stop = start + rows * width
        query, key, value = (
            part[:, start:stop].reshape(groups, rows, width, HEADS, SIZE) for part in projected
        )
        scores = jnp.einsum("grqnd,grknd->grnqk", query, key) / SIZE**0.5
        shares = jax.nn.softmax(scores + jnp.where(mask, 0.0, -1e9)[:, :, None, None])
        kept = partial(keep, shape=(width, width), query_axis=0, rate=form.rate)
        kept = jax.vmap(jax.vmap(jax.vmap(kept)))(seed)
        shares = jnp.where(kept, shares / (1 - form.rate), 0.0)
        out.append(jnp.einsum("grnqk,grknd->grqnd", shares, value).reshape(groups, -1, 4 * SIZE))
        start = stop
    return jnp.concatenate(out, axis=1)


@pytest.fixture(scope="module")
def operands():
    rng = np.random.default_rng(0)
    pieces = sum(rows * width for rows, width in WIDTHS)
    projected = jnp.asarray(rng.normal(size=(3, GROUPS, pieces, HEADS * SIZE)), jnp.float32)
    lengths = [rng.integers(0, width + 1, (GROUPS, rows, 1)) for rows, width in WIDTHS]
    masks = [
        jnp.arange(width)[None, None] < own for own, (_, width) in zip(lengths, WIDTHS, strict=True)
    ]
    return projected, masks, jnp.asarray(rng.normal(size=projected.shape[1:]), jnp.float32)


def outputs(attention, form, operands, drop):
    """Values and gradients of a weighted sum of them."""
    projected, masks, weights = operands

    def loss(projected):
        mixed = attention(form, projected, masks, draw_seeds(drop, masks, HEADS))
        return (mixed * weights).sum(), mixed

    return jax.jit(jax.grad(loss, has_aux=True))(projected)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "seed"), [(0.0, None), (0.3, 5)])
def test_the_kernel_and_its_gradients_equal_plain_jax_on_a_mesh(operands, rate, seed):
    """Streams are on two devices and heads on two; dropout is that of one device."""
    form, drop = Form(SIZE, rate, interpret=True), None if seed is None else jax.random.key(seed)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 1, 1, 4)[..., :2], MESH_AXES)
    with jax.set_mesh(mesh):
        found = outputs(attend_on_mesh, form, operands, drop)
    expected = outputs(plain, form, operands, drop)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)


def test_an_encoder_with_the_kernel_equals_one_without():
    """Rows of 20 and 12 pieces are not whole tiles."""
    rng = np.random.default_rng(1)
    blocks = []
    for rows, width in ((2, 20), (1, 12)):
        shape = (GROUPS, rows, width)
        ids = jnp.asarray(rng.integers(5, 96, shape), jnp.int32)
        lengths = rng.integers(3, width + 1, (GROUPS, rows, 1))
        blocks.append((ids, jnp.arange(width)[None, None] < lengths, ids % 2))
    starts = jnp.asarray([[0, 20, 40]] * GROUPS, jnp.int32)

    def run(attention):
        config = tiny_config(model__layers=1, model__attention=attention)
        modules = Modules(config.model, 96, ("embedder",))

        def loss(params):
            vectors = modules.bind(params).embedder.embed_packed(blocks, starts)
            return (vectors**3).sum(), vectors

        return jax.jit(jax.grad(loss, has_aux=True))(modules.init(jax.random.key(0)))

    near = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
    jax.tree.map(near, run("pallas"), run("xla"))


def test_dropout_keeps_its_share_and_differs_between_seeds():
    kept = np.stack([keep(jnp.int32(seed), (96, 96), 0, 0.1) for seed in (1, 2, -(2**31))])
    np.testing.assert_allclose(kept.mean((1, 2)), 0.9, atol=0.01)
    assert abs(np.corrcoef(kept.reshape(3, -1).astype(float)) - np.eye(3)).max() < 0.04
    transposed = keep(jnp.int32(1), (96, 96), 1, 0.1)
    np.testing.assert_array_equal(np.asarray(transposed).T, kept[0])


def test_cudnn_is_refused_without_a_gpu(operands):
    w = {f"{name}_kernel": jnp.ones((8, 2, 8)) for name in ("query", "key", "value")}
    w |= {f"{name}_bias": jnp.ones((2, 8)) for name in ("query", "key", "value")}
    x = jnp.ones((GROUPS, operands[0].shape[2], 8))
    with pytest.raises(ConfigError, match="cuDNN"):
        self_attention(x, w, operands[1], "cudnn", 0.1, None)


def test_rows_of_cudnn_have_an_even_width(monkeypatch):
    config = tiny_config(model__attention="cudnn", lengths__query=11)
    modules = Modules(config.model, 30, ("embedder",))
    networks = modules.bind(jax.jit(modules.init)(jax.random.key(0)))
    widths = []

    def attention(x, w, masks, *_):
        widths.extend(mask.shape[2] for mask in masks)
        return jnp.zeros((*x.shape[:2], *w["query_bias"].shape), x.dtype)

    monkeypatch.setattr(bert, "self_attention", attention)
    rows = jnp.ones((3, 11), jnp.int32)
    jax.jit(networks.embedder.embed)(rows, rows > 0, 0 * rows)
    assert set(widths) == {12}


@pytest.mark.slow
def test_whole_tiles_may_be_wider_than_the_table_of_positions():
    changes = {"model__positions": 20, "lengths__query": 12, "lengths__passage": 20}
    hidden = {}
    for attention in ("xla", "pallas"):  # tiles of 1 and of 16 pieces
        config = tiny_config(model__attention=attention, lengths__joint=20, **changes)
        modules = Modules(config.model, 30, ("embedder",))
        networks = modules.bind(jax.jit(modules.init)(jax.random.key(0)))
        rows = jnp.arange(60, dtype=jnp.int32).reshape(3, 20) % 30
        hidden[attention] = jax.jit(networks.embedder.embed)(rows, rows >= 0, 0 * rows)
    np.testing.assert_allclose(hidden["pallas"], hidden["xla"], atol=1e-5)
