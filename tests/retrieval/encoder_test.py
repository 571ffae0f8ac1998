"""One jitted program embeds queries and passages for all users of a process."""

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.rows import Rows
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
