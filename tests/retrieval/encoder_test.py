"""One jitted program embeds queries and passages for all users of a process."""

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.rows import Rows, passage_rows
from realm_jax.parallel.sharding import local_mesh
from realm_jax.retrieval import encoder as encoder_module
from realm_jax.retrieval.encoder import Encoder


@pytest.fixture(scope="module")
def config(tiny):
    return tiny_config(tiny.folder, model__layers=1)


def test_encoders_of_one_model_share_the_program(config, tiny):
    size = tiny.store.vocabulary.size
    other = tiny_config(tiny.folder, model__layers=1, model__embedding=4)
    assert Encoder(config, size).program is Encoder(config, size).program
    assert Encoder(config, size).program is not Encoder(other, size).program


def test_many_queries_are_embedded_in_calls_of_one_shape(config, tiny, monkeypatch):
    monkeypatch.setattr(encoder_module, "MAX_QUERIES", 4)
    encoder = Encoder(config, tiny.store.vocabulary.size)
    params = jax.jit(encoder.modules.init)(jax.random.key(0))["embedder"]
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 10).queries
    embed, sizes = encoder.embed, []

    def recorded(params, rows):
        sizes.append(len(rows.ids))
        return embed(params, rows)

    monkeypatch.setattr(encoder, "embed", recorded)
    found = encoder.embed_queries(params, queries)
    assert sizes == [4, 4, 4]
    last = Rows(*(np.resize(part[8:], (4, part.shape[1])) for part in queries))
    np.testing.assert_array_equal(found[8:], embed(params, last)[:2])


@pytest.fixture(scope="module")
def params(config, tiny):
    encoder = Encoder(config, tiny.store.vocabulary.size)
    return jax.jit(encoder.modules.init)(jax.random.key(0))["embedder"]


@pytest.mark.parametrize("devices", [3, None])
def test_each_device_embeds_an_equal_share_of_the_rows(config, tiny, params, monkeypatch, devices):
    """Without a mesh, all devices of the process."""
    mesh = devices and local_mesh(jax.local_devices()[:devices])
    devices = devices or jax.local_device_count()
    encoder, calls = Encoder(config, tiny.store.vocabulary.size, mesh), []
    program = encoder.program

    def recorded(params, rows):
        calls.append((params, rows, program(params, rows)))
        return calls[-1][-1]

    monkeypatch.setattr(encoder, "program", recorded)
    placed, ids = encoder.place(params), np.arange(len(tiny.store))
    encoder.embed_passages(placed, tiny.store, ids)
    encoder.embed(placed, passage_rows(tiny.store, ids[:5], 24))
    assert len(calls) >= 2
    for given, rows, vectors in calls:
        assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(given))
        assert len(jax.tree.leaves(given)[0].addressable_shards) == devices
        for part in (*rows, vectors):
            sizes = {shard.data.shape[0] for shard in part.addressable_shards}
            assert len({shard.device for shard in part.addressable_shards}) == devices
            assert sizes == {len(part) // devices}


def test_vectors_of_several_devices_equal_those_of_one(config, tiny, params):
    size, ids = tiny.store.vocabulary.size, np.arange(len(tiny.store))
    one, all_devices = (
        Encoder(config, size, local_mesh(jax.local_devices()[:1])),
        Encoder(config, size),
    )
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 10).queries
    for call in (
        lambda encoder: encoder.embed_passages(encoder.place(params), tiny.store, ids),
        lambda encoder: encoder.embed_queries(encoder.place(params), queries),
        lambda encoder: encoder.embed_queries(params, queries),
    ):
        expected, found = call(one), call(all_devices)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
