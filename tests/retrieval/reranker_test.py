"""Hits ranked anew by vectors of the step: against exact search among them."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.errors import ConfigError
from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import PassageEmbedder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.reranker import Reranker
from realm_jax.retrieval.retriever import Retriever

WIDTH, K = 12, 4


@pytest.fixture(scope="module")
def parts(tiny):
    config = tiny_config(tiny.folder, model__layers=1, retrieval__rerank=WIDTH)
    pieces = tiny.store.vocabulary.size
    modules = Modules(config.model, pieces, ("embedder",))
    old, fresh = (jax.jit(modules.init)(jax.random.key(n))["embedder"] for n in (0, 1))
    rows = np.arange(len(tiny.store))[::-1]
    vectors = {
        name: PassageEmbedder(config, tiny.store, own).vectors(rows)
        for name, own in (("old", old), ("fresh", fresh))
    }
    index = SimpleNamespace(
        step=0, searcher=ExactSearcher(vectors["old"]), rows=rows, query_params=old
    )
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 8).queries
    retriever = Retriever(config, pieces)
    scores = {
        name: (retriever.vectors_by(own, queries) @ vectors[name].T)[:, np.argsort(rows)]
        for name, own in (("old", old), ("fresh", fresh))
    }
    ranked = Reranker(config, tiny.store, retriever)
    return SimpleNamespace(
        ranked=lambda given: ranked.hits(index, queries, K, given),
        stale=retriever.hits(index, queries, WIDTH),
        scores=scores,  # by passage id
        old=old,
        fresh=fresh,
    )


def test_the_best_by_fresh_vectors_come_first_among_stale_hits(parts):
    found = parts.ranked(parts.fresh)
    among = np.take_along_axis(parts.scores["fresh"], parts.stale, axis=1)
    expected = np.take_along_axis(parts.stale, np.argsort(-among, axis=1)[:, :K], axis=1)
    np.testing.assert_array_equal(found, expected)
    assert (found != parts.stale[:, :K]).any()


def test_with_the_parameters_of_the_index_the_order_stands(parts):
    found, best = (
        np.take_along_axis(parts.scores["old"], hits, axis=1)  # hits may be as good as equal
        for hits in (parts.ranked(parts.old), parts.stale[:, :K])
    )
    np.testing.assert_allclose(found, best, rtol=1e-4)


@pytest.mark.parametrize(
    "change", [{"retrieval__rerank": 2, "retrieval__candidates": 4}, {"search__kind": "mesh"}]
)
def test_settings_that_cannot_work_are_refused(change):
    with pytest.raises(ConfigError, match="rerank"):
        tiny_config(**{"retrieval__rerank": 64, **change})
