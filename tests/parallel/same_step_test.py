"""The same training step on one device and on eight: same loss, same gradients, every stage."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import QuestionSource
from realm_jax.exchange.layout import RunDir
from realm_jax.parallel.sharding import MESH_AXES, batch_sharding, make_mesh
from realm_jax.testing.fakes import tiny_config
from realm_jax.trainer.index_in_use import IndexInUse
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.qa_stage import QaStage
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.stage import IctStage, ReaderStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

MESHES = {"data=8": (8, 1), "data=4 model=2": (4, 2), "data=2 model=4": (2, 4)}
STEPS = 2


def stage_and_batches(name, tiny):
    """A stage with dropout on, and its first batches; hits are drawn instead of searched."""
    config = tiny_config(tiny.folder, model__layers=1, **{f"stages__{name}__steps": 4})
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    rng = np.random.default_rng(0)
    hits = rng.permuted(np.tile(np.arange(40), (40, 1)), axis=1)[:, :6]
    if name == "realm":
        index = IndexInUse(RunDir(tiny.folder), config, tiny.store.corpus_hash, [], set)
        stage = RealmStage(config, tiny.store, text, text, index)
        batches = [
            stage.with_candidates(text.batch(step, 8), hits[8 * step : 8 * step + 8])
            for step in range(STEPS)
        ]
        return config, stage, batches
    if name == "qa":
        hits[:, 0] = np.arange(40)
        vectors = rng.normal(size=(40, config.model.embedding)).astype(np.float32)
        source = QuestionSource(tiny.questions, hits, vectors, tiny.store, config)
        stage = QaStage(config, tiny.store.vocabulary.size, source)
    elif name == "ict":
        stage = IctStage(config, tiny.store)
    else:
        stage = ReaderStage(config, tiny.store, text)
    return config, stage, [stage.batch(step) for step in range(STEPS)]


def run(config, stage, batches, mesh, start):
    """Metrics of each step, and the optimiser's first moments: a running mean of the gradients."""
    optimizer = make_optimizer(config.optimizer, stage.settings)
    state = make_state(stage.modules, optimizer, mesh, config.seed, start)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    step = make_step(stage, optimizer, mesh, places, config.seed)
    metrics = []
    for batch in batches:
        state, measured = step(state, jax.device_put(batch, batch_sharding(mesh)))
        metrics.append(jax.device_get(measured))
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == places
    return metrics, state


def first_moments(state):
    [moments] = [part for part in state.optimizer if hasattr(part, "mu")]
    return moments.mu


@pytest.mark.parametrize("name", ["ict", "reader", "realm", "qa"])
def test_one_device_and_eight_take_the_same_step(name, tiny):
    config, stage, batches = stage_and_batches(name, tiny)
    one = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), MESH_AXES)
    start = jax.device_get(jax.jit(stage.modules.init)(jax.random.key(1)))
    expected, alone = run(config, stage, batches, one, start)
    assert all(metrics["gradient_norm"] > 1e-3 for metrics in expected)
    for asked in MESHES.values():
        sizes = type(config)({"data": asked[0], "model": asked[1]})
        metrics, state = run(config, stage, batches, make_mesh(sizes), start)
        for mine, theirs in zip(metrics, expected, strict=True):
            for key, value in theirs.items():
                np.testing.assert_allclose(mine[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
            jax.device_get(first_moments(state)),
            jax.device_get(first_moments(alone)),
        )
        assert_spread(state, asked)


def assert_spread(state, asked):
    """Large parameters and their moments really lie in parts where the mesh has a model axis."""
    word = next(iter(state.parameters.values()))["bert"]["word"]
    moment = next(iter(first_moments(state).values()))["bert"]["word"]
    for leaf in (word, moment):
        assert leaf.addressable_shards[0].data.shape == (96 // asked[1], 16)
        assert len(leaf.sharding.device_set) == 8
