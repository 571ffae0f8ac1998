"""Recall of a whole corpus is measured in bounded calls, however many queries there are."""

import jax
import numpy as np
import pytest
from support.finished_run import random_params
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.parallel.program import Program
from realm_jax.retrieval import encoder, retriever
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.trainer.recall import EmbeddedCorpus


@pytest.fixture(scope="module")
def embedder(tiny):
    config = tiny_config(tiny.folder, model__layers=1, model__init_stddev=0.3)
    return config, random_params(config, tiny.store.vocabulary.size)["embedder"]


def test_queries_are_embedded_and_searched_in_chunks(tiny, embedder, monkeypatch):
    config, params = embedder
    corpus = EmbeddedCorpus(config, tiny.store, params)
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 20).queries
    expected = corpus.hits(queries, 3)
    for module in (encoder, retriever):
        monkeypatch.setattr(module, "MAX_QUERIES", 8)
    rows, call, search = {"embed": [], "search": []}, Program.__call__, ExactSearcher.search

    def embedded(program, params, batch):
        rows["embed"].append(len(batch.ids))
        return call(program, params, batch)

    def searched(searcher, vectors, k):
        rows["search"].append(len(vectors))
        return search(searcher, vectors, k)

    monkeypatch.setattr(Program, "__call__", embedded)
    monkeypatch.setattr(ExactSearcher, "search", searched)
    np.testing.assert_array_equal(corpus.hits(queries, 3), expected)
    assert rows == {"embed": [8, 8, 8], "search": [8, 8, 4]}
    assert jax.device_count() == 8  # a call of 8 rows has one for each device


def test_recall_is_that_of_the_sentences_whose_evidence_is_known(tiny, embedder):
    config, params = embedder
    corpus = EmbeddedCorpus(config, tiny.store, params)
    text = MaskedTextSource(tiny.store, tiny.spans, config).first(4)
    hits = corpus.hits(text.queries, 3)
    evidence = np.array([-1, -1, hits[2, 2], hits[3, 0]])  # unknown, unknown, third, first
    text = text._replace(evidence=evidence)
    assert [corpus.masked_recall(text, k) for k in (1, 2, 3)] == [0.5, 0.5, 1.0]
