"""Every dropout mask of a step has a key of its own, which depends on seed, stage and step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from support.tiny_corpus import tiny_config

from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import MESH_AXES, batch_sharding
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.state import make_state, stream_key
from realm_jax.trainer.step import make_step

LAYERS, PARTS = 2, 2


def numbers(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


class Keys(list):
    """The keys that a compiled program used, as tuples of numbers."""

    def record(self, key):
        jax.debug.callback(lambda data: self.append(tuple(data.tolist())), jax.random.key_data(key))


@pytest.fixture
def masks(monkeypatch):
    """The key of each dropout mask that is drawn."""
    found, draw = Keys(), jax.random.bernoulli

    def recorded(key, *arguments):
        found.record(key)
        return draw(key, *arguments)

    monkeypatch.setattr(jax.random, "bernoulli", recorded)
    return found


def test_no_two_masks_of_a_network_have_the_same_key(masks):
    """Embeddings, attention of each block, two sums in each layer, and the vectors."""
    modules = Modules(tiny_config(model__layers=LAYERS).model, 30, ("embedder",))
    params = jax.jit(modules.init)(jax.random.key(0))
    ids = [np.ones((2, 3, width), np.int32) for width in (16, 8)]
    blocks = [Rows(one, one > 0, 0 * one) for one in ids]
    starts = np.arange(6, dtype=np.int32)[None].repeat(2, 0)
    embed = jax.jit(lambda params, *given: modules.bind(params).embedder.embed_packed(*given))
    jax.block_until_ready(embed(params, blocks, starts, jax.random.key(1)))
    jax.effects_barrier()
    assert len(masks) == 1 + LAYERS * (len(blocks) + 2) + 1
    assert len(set(masks)) == len(masks)


class Recording(IctStage):
    """Records the key of each micro-batch."""

    def __init__(self, config, store):
        super().__init__(config, store, PARTS)
        self.keys = Keys()

    def loss(self, networks, batch, key):
        self.keys.record(key)
        return networks.embedder.bert.word[...].sum(), {"loss": jnp.float32(0)}


def keys_of_two_steps(tiny, seed):
    config = tiny_config(tiny.folder, model__layers=1, stages__ict__steps=2)
    stage = Recording(config, tiny.store)
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1, 1), MESH_AXES)
    optimizer = make_optimizer(config.optimizer, stage.settings)
    params = jax.jit(stage.modules.init)(jax.random.key(0))
    state = make_state(stage.modules, optimizer, mesh, jax.device_get(params))
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    step = make_step(stage, optimizer, mesh, shardings, seed, PARTS)
    for number in range(2):
        batch = stage.batch(number, np.arange(8))
        state, _ = step(state, jax.device_put(batch, batch_sharding(mesh)))
    jax.block_until_ready(state)
    jax.effects_barrier()
    return list(stage.keys)


def test_keys_differ_between_micro_batches_steps_stages_and_seeds(tiny):
    found = keys_of_two_steps(tiny, 0)
    assert len(set(found)) == len(found) == 2 * PARTS
    keys = [stream_key(0, "dropout/reader", 0), stream_key(1, "dropout/ict", 0)]
    others = [jax.random.fold_in(key, part) for key in keys for part in range(PARTS)]
    ours = [jax.random.fold_in(stream_key(0, "dropout/ict", 1), part) for part in range(PARTS)]
    assert set(map(numbers, ours)) < set(found)
    assert not set(map(numbers, others)) & set(found)
