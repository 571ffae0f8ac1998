"""A run folder and snapshots of an embedder with random weights, for tests of segments."""

import jax
import pytest
from support.index_of_segments import config_of
from support.probes import publish_with_probes

from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage.layout import RunDir


@pytest.fixture(scope="module")
def parameters(tiny):
    modules = Modules(config_of(tiny).model, tiny.store.vocabulary.size, ("embedder",))
    return jax.device_get(jax.jit(modules.init)(jax.random.key(0)))


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run")


@pytest.fixture
def publish(parameters):
    return lambda run, step, config: publish_with_probes(run, step, config, parameters)


@pytest.fixture
def embedded(monkeypatch):
    """First passage ids of the shards that were embedded, in order."""
    embedded, embed_passages = [], Encoder.embed_passages

    def recorded(self, params, store, ids):
        if len(ids) <= 4:  # not the passages that are probe queries
            embedded.append(int(ids[0]))
        return embed_passages(self, params, store, ids)

    monkeypatch.setattr(Encoder, "embed_passages", recorded)
    return embedded
