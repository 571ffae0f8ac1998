"""Hits re-ranked with the params of the step equal exact search among these hits."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.errors import ConfigError
from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.make_retriever import make_retriever
from realm_jax.retrieval.retriever import StepContext

WIDTH, K = 12, 4


@pytest.fixture(scope="module")
def parts(tiny):
    config = tiny_config(tiny.folder, model__layers=1, retrieval__rerank=WIDTH)
    pieces = tiny.store.vocabulary.size
    modules = Modules(config.model, pieces, ("embedder",))
    old, fresh = (jax.jit(modules.init)(jax.random.key(n))["embedder"] for n in (0, 1))
    rows = np.arange(len(tiny.store))[::-1]
    encoder = Encoder(config, pieces)
    vectors = {
        name: encoder.embed_passages(own, tiny.store, rows)
        for name, own in (("old", old), ("fresh", fresh))
    }
    index = SimpleNamespace(
        step=0, searcher=ExactSearcher(vectors["old"]), rows=rows, query_params=old
    )
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 8).queries
    scores = {
        name: (encoder.embed_queries(own, queries) @ vectors[name].T)[:, np.argsort(rows)]
        for name, own in (("old", old), ("fresh", fresh))
    }
    ranked = make_retriever(config, tiny.store)
    return SimpleNamespace(
        ranked=lambda given, k=K: ranked.hits(index, queries, k, StepContext(params=given)),
        stale=HostRetriever(config, pieces).hits(index, queries, 2 * WIDTH),
        scores=scores,  # by passage id
        old=old,
        fresh=fresh,
    )


def test_stale_hits_are_ordered_by_fresh_vectors(parts):
    found = parts.ranked(parts.fresh)
    stale = parts.stale[:, :WIDTH]
    among = np.take_along_axis(parts.scores["fresh"], stale, axis=1)
    expected = np.take_along_axis(stale, np.argsort(-among, axis=1)[:, :K], axis=1)
    np.testing.assert_array_equal(found, expected)
    assert (found != parts.stale[:, :K]).any()


def test_hits_after_those_that_are_ranked_stay_in_the_order_of_the_index(parts):
    found = parts.ranked(parts.fresh, 2 * WIDTH)
    np.testing.assert_array_equal(np.sort(found[:, :WIDTH]), np.sort(parts.stale[:, :WIDTH]))
    np.testing.assert_array_equal(found[:, WIDTH:], parts.stale[:, WIDTH:])


def test_with_the_params_of_the_index_the_order_does_not_change(parts):
    found, best = (
        np.take_along_axis(parts.scores["old"], hits, axis=1)  # scores may be nearly equal
        for hits in (parts.ranked(parts.old), parts.stale[:, :K])
    )
    np.testing.assert_allclose(found, best, rtol=1e-4)


@pytest.mark.parametrize(
    "change", [{"retrieval__rerank": 2, "retrieval__candidates": 4}, {"search__kind": "mesh"}]
)
def test_invalid_reranking_settings_are_refused(change):
    with pytest.raises(ConfigError, match="rerank"):
        tiny_config(**{"retrieval__rerank": 64, **change})
