"""Training steps on one device and on meshes of eight give the same losses and gradients."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import QuestionSource
from realm_jax.parallel.sharding import MESH_AXES, batch_sharding, make_mesh
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.qa_stage import QaStage
from realm_jax.trainer.reader_stage import ReaderStage
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

EVERY_AXIS = (1, 2, 2, 2)  # replica x data x fsdp x model
MESHES = [
    (1, 8, 1, 1),
    (1, 1, 8, 1),
    (1, 1, 1, 8),
    (1, 4, 1, 2),
    (1, 2, 1, 4),
    (1, 1, 2, 4),
    (1, 2, 4, 1),
    (2, 1, 2, 2),
]
STEPS = 2
GROUPS = 8  # the same on every mesh, so that dropout masks are the same


def stage_and_batches(name, tiny, steps=STEPS, **changes):
    """A stage with dropout and its first batches; hits are random instead of retrieved."""
    changes = {"model__layers": 1, f"stages__{name}__steps": 2 * steps, **changes}
    config = tiny_config(tiny.folder, **changes)
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    rng = np.random.default_rng(0)
    hits = rng.permuted(np.tile(np.arange(40), (40, 1)), axis=1)[:, :6]
    if name == "realm":
        index = IndexManager(
            RunDir(tiny.folder), config, {tiny.store.corpus_hash}.__contains__, [], set
        )
        stage = RealmStage(config, tiny.store, text, text, index)
        batches = [
            stage.with_candidates(text.batch(step, 8), hits[8 * (step % 5) :][:8], 8 // GROUPS)
            for step in range(steps)
        ]
        return config, stage, batches
    if name == "qa":
        hits[:, 0] = np.arange(40)
        vectors = rng.normal(size=(40, config.model.embedding)).astype(np.float32)
        source = QuestionSource(tiny.questions, hits, vectors, tiny.store, config)
        stage = QaStage(config, tiny.store.vocabulary.size, source)
    elif name == "ict":
        stage = IctStage(config, tiny.store, GROUPS)
    else:
        stage = ReaderStage(config, tiny.store, text, GROUPS)
    return config, stage, [stage.batch(step) for step in range(steps)]


def run(config, stage, batches, mesh, start):
    """Metrics of each step, and the final state."""
    optimizer = make_optimizer(config.optimizer, stage.settings)
    state = make_state(stage.modules, optimizer, mesh, start, stage.reference)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    step = make_step(stage, optimizer, mesh, shardings, config.seed)
    metrics = []
    for batch in batches:
        state, measured = step(state, jax.device_put(batch, batch_sharding(mesh)))
        metrics.append(jax.device_get(measured))
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == shardings
    return metrics, state


def first_moments(state):
    [moments] = [part for part in state.optimizer if hasattr(part, "mu")]
    return moments.mu


def mesh_of(config, sizes):
    return make_mesh(type(config)(dict(zip(MESH_AXES, sizes, strict=True))))


def one_device():
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1, 1), MESH_AXES)


@pytest.mark.parametrize(
    "name",
    ["realm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("reader", "ict", "qa"))],
)
def test_one_device_and_eight_give_the_same_steps(name, tiny):
    penalised = name in ("ict", "realm")
    changes = {f"stages__{name}__distance_penalty": 10.0} if penalised else {}
    config, stage, batches = stage_and_batches(name, tiny, **changes)
    start = jax.device_get(jax.jit(stage.modules.init)(jax.random.key(1)))
    expected, single = run(config, stage, batches, one_device(), start)
    assert all(metrics["gradient_norm"] > 1e-3 for metrics in expected)
    assert not penalised or all(metrics["distance"] > 0 for metrics in expected)  # by dropout
    metrics, state = run(config, stage, batches, mesh_of(config, EVERY_AXIS), start)
    for found, single_metrics in zip(metrics, expected, strict=True):
        for key, value in single_metrics.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
        jax.device_get(first_moments(state)),
        jax.device_get(first_moments(single)),
    )
    assert_sharded(state, EVERY_AXIS)


@pytest.mark.parametrize(
    ("name", "meshes"),
    [
        pytest.param("realm", MESHES, id="realm"),
        pytest.param("ict", MESHES, id="ict"),
    ],
)
@pytest.mark.slow
def test_twenty_steps_have_the_same_losses_on_every_mesh(name, meshes, tiny):
    """Covers the in-batch softmax of ICT and the marginal over candidates, across all devices."""
    config, stage, batches = stage_and_batches(name, tiny, steps=20)
    start = jax.device_get(jax.jit(stage.modules.init)(jax.random.key(1)))
    expected = losses(run(config, stage, batches, one_device(), start)[0])
    assert np.ptp(expected) > 0.05
    for sizes in meshes:
        found = losses(run(config, stage, batches, mesh_of(config, sizes), start)[0])
        np.testing.assert_allclose(found, expected, rtol=1e-3, err_msg=str(sizes))


def losses(metrics):
    return [float(of_step["loss"]) for of_step in metrics]


def assert_sharded(state, sizes):
    """Large params and their moments are sharded over the mesh axes fsdp and model."""
    _, _, fsdp, model = sizes
    word = next(iter(state.parameters.values()))["bert"]["word"]
    moment = next(iter(first_moments(state).values()))["bert"]["word"]
    for leaf in (word, moment):
        assert leaf.addressable_shards[0].data.shape == (96 // model, 16 // fsdp)
        assert len(leaf.sharding.device_set) == 8
