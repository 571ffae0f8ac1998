"""Every dropout mask of a step has a key of its own, which depends on seed, stage and step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.parallel.sharding import MESH_AXES, batch_sharding
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

LAYERS, PARTS = 3, 2


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


def test_no_two_masks_of_a_loss_have_the_same_key(tiny, masks):
    """Embeddings, attention and two sums in each layer, and the vectors of the embedder."""
    config = tiny_config(tiny.folder, model__layers=LAYERS, stages__realm__steps=2)
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    known = {tiny.store.corpus_hash}
    index = IndexManager(RunDir(tiny.folder), config, known.__contains__, [], set)
    stage = RealmStage(config, tiny.store, text, text, index)
    drawn = text.batch(0, 8)
    batch = stage.with_candidates(drawn, np.tile(np.arange(6), (8, 1)), 8)
    params = jax.jit(stage.modules.init)(jax.random.key(0))
    loss = jax.jit(lambda p, b, key: stage.loss(stage.modules.bind(p), b, key)[0])
    jax.block_until_ready(loss(params, batch, jax.random.key(1)))
    jax.effects_barrier()
    widths = [len(packed.blocks) for packed in (batch.embedded, batch.read)]
    assert len(masks) == 1 + sum(1 + LAYERS * (blocks + 2) for blocks in widths)
    assert len(set(masks)) == len(masks)


class Recording(IctStage):
    """Records the key of each micro-batch."""

    def __init__(self, name, config, store):
        super().__init__(config, store, PARTS)
        self.name, self.keys = name, Keys()

    def loss(self, networks, batch, key):
        self.keys.record(key)
        return networks.embedder.bert.word[...].sum(), {"loss": jnp.float32(0)}


def keys_of_steps(tiny, name, seed):
    config = tiny_config(tiny.folder, model__layers=1, stages__ict__steps=2)
    stage = Recording(name, config, tiny.store)
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
    found = keys_of_steps(tiny, "ict", 0)
    assert len(set(found)) == len(found) == 2 * PARTS
    other = keys_of_steps(tiny, "reader", 0) + keys_of_steps(tiny, "ict", 1)
    assert len(set(found + other)) == 6 * PARTS
    assert keys_of_steps(tiny, "ict", 0) == found
