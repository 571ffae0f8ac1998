"""Settings for memory and speed (remat, scan, bfloat16, micro-batches) keep the results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from support.tiny_corpus import tiny_config

from realm_jax import losses
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules
from realm_jax.models.operations import product
from realm_jax.parallel.sharding import MESH_AXES, batch_sharding
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.reader_stage import ReaderStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

DEEP = {"model__layers": 6, "model__dropout": 0.0}


def gradient_function(config, size=4):
    """The gradient of a weighted sum of query vectors, and params."""
    modules = Modules(config.model, 96, ("embedder",))
    params = jax.jit(modules.init)(jax.random.key(0))
    ids = np.random.default_rng(0).integers(5, 96, (size, 20)).astype(np.int32)
    rows = jax.tree.map(jnp.asarray, Rows(ids, np.ones(ids.shape, bool), np.zeros_like(ids)))

    def loss(params):
        vectors = modules.bind(params).embedder.embed(*rows)
        return (vectors * jnp.arange(vectors.size).reshape(vectors.shape)).sum()

    return jax.grad(loss), params


def gradients(config):
    """Gradients of a weighted sum of query vectors, and the jaxpr of the gradient function."""
    gradient, params = gradient_function(config)
    return jax.jit(gradient)(params), str(jax.make_jaxpr(gradient)(params))


@pytest.fixture(scope="module")
def plain():
    return gradients(tiny_config(**DEEP))


@pytest.mark.parametrize(
    "change",
    [
        {"model__remat": "full"},
        pytest.param({"model__remat": "attention"}, marks=pytest.mark.slow),
        {"model__scan": False},
    ],
)
def test_remat_and_scan_change_the_program_but_not_the_gradients(plain, change):
    expected, program = plain
    found, other = gradients(tiny_config(**DEEP, **change))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), found, expected
    )
    if "model__remat" in change:
        assert "remat" in other and "remat" not in program
    else:
        assert "unroll=5" in other.replace("unroll=True", "unroll=5") and "unroll=1" in program


def test_each_choice_of_remat_recomputes_more_products():
    def products(remat):
        gradient, params = gradient_function(tiny_config(**DEEP, model__remat=remat))
        return jax.jit(gradient).lower(params).as_text().count("stablehlo.dot_general")

    none, attention, full = map(products, ("none", "attention", "full"))
    assert none < attention < full


def test_bfloat16_products_accumulate_in_float32():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(64, 300, 16)), jnp.bfloat16)
    kernel = jnp.asarray(np.random.default_rng(1).normal(size=(16, 8)), jnp.float32)
    run = jax.grad(lambda x, w: product("rli,io->rlo", x, w).sum(), argnums=(0, 1))
    x_gradient, kernel_gradient = run(x, kernel)
    assert (x_gradient.dtype, kernel_gradient.dtype) == (jnp.bfloat16, jnp.float32)
    exact = np.broadcast_to(np.asarray(x, np.float64).sum((0, 1))[:, None], (16, 8))
    np.testing.assert_allclose(kernel_gradient, exact, rtol=1e-5, atol=1e-3)
    text = str(jax.make_jaxpr(run)(x, kernel))
    assert "f32[16,8]" in text and "bf16[8,16]" not in text  # no intermediate result is rounded


def one_step(stage, config, parts):
    mesh = Mesh(np.array(jax.devices()[:2]).reshape(1, 2, 1, 1), MESH_AXES)
    optimizer = make_optimizer(config.optimizer, stage.settings)
    start = jax.device_get(jax.jit(stage.modules.init)(jax.random.key(1)))
    state = make_state(stage.modules, optimizer, mesh, start)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    step = make_step(stage, optimizer, mesh, shardings, config.seed, parts)
    state, metrics = step(state, jax.device_put(stage.batch(0), batch_sharding(mesh)))
    return jax.device_get((state.parameters, metrics))


def test_micro_batches_give_the_step_of_the_whole_batch(tiny):
    """Micro-batches differ in masked tokens, so their unweighted mean would be wrong."""
    changes = {"model__layers": 1, "model__dropout": 0.0, "stages__reader__steps": 8}
    changes |= {"masking__scheme": "random_token", "masking__rate": 0.15}
    config = tiny_config(tiny.folder, **changes)
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    stage = ReaderStage(config, tiny.store, text, groups=8)
    counts = stage.batch(0).examples.text.weights.sum((1, 2))
    assert len({float(counts[part::4].sum()) for part in range(4)}) > 1
    stage.loss = lambda networks, batch, key: masked_lm(networks, batch)
    whole, metrics = one_step(stage, config, 1)
    parts, part_metrics = one_step(stage, config, 4)
    np.testing.assert_allclose(part_metrics["loss"], metrics["loss"], rtol=1e-5)
    np.testing.assert_allclose(part_metrics["gradient_norm"], metrics["gradient_norm"], rtol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), parts, whole)


def masked_lm(networks, batch):
    (ids, mask, segments), text = jax.tree.map(lambda leaf: leaf[:, 0], batch.examples[:2])
    logits = networks.reader.mlm_logits(ids, mask, segments, text.positions)
    return losses.masked_lm_loss(losses.token_log_probs(logits, text.targets), text.weights)


@pytest.mark.slow
def test_ict_negatives_come_from_the_micro_batch(tiny):
    """With two rows in a micro-batch, the loss of a random guess is log 2, not log 8."""
    config = tiny_config(tiny.folder, model__layers=1, stages__ict__steps=8)
    whole, few = (
        one_step(IctStage(config, tiny.store, 2 * parts), config, parts)[1]["loss"]
        for parts in (1, 4)
    )
    assert abs(whole - np.log(8)) < 1.0 and abs(few - np.log(2)) < 0.6 and few < whole
