"""Recall of an index, which decides whether it is published."""

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.index_builder.recall import Probes, passage_probes, widen_to_floor
from realm_jax.retrieval.searcher import build_searcher

ROWS, DIMS = 2_000, 64


@pytest.fixture
def spread():
    return np.random.default_rng(0).normal(size=(ROWS, DIMS)).astype(np.float32)


def test_exact_search_of_nearly_equal_vectors_has_full_recall_despite_rounding(spread):
    """An untrained embedder: all vectors equal one of length 11, plus a millionth of another."""
    config = tiny_config()
    nearly_one = (np.full(DIMS, 1.4) + 1e-6 * spread).astype(np.float32)
    for kind in ("exact", "scann"):  # with so few rows, ScaNN searches all of them
        searcher = build_searcher(kind, nearly_one, config.search)
        assert passage_probes(nearly_one, 8).recall(searcher) == 1.0


def test_hits_with_clearly_lower_scores_reduce_recall(spread):
    config = tiny_config()
    probes = passage_probes(spread, 8)
    assert probes.recall(build_searcher("exact", spread, config.search)) == 1.0
    assert probes.recall(build_searcher("exact", -spread, config.search)) == 0.0


def clustered(count):
    """Rows around 300 centres, and queries that are near none of them."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(300, 32))
    rows = centres[random.integers(0, 300, count)] + 0.4 * random.normal(size=(count, 32))
    return rows.astype(np.float32), random.normal(size=(100, 32)).astype(np.float32)


def test_recall_is_lower_for_other_queries_than_passages_and_decides_whether_to_widen():
    """With 5 of 150 partitions searched: 0.81 for other queries, 0.98 for passages as queries."""
    rows, queries = clustered(25_000)
    config = tiny_config(search__kind="scann", search__leaves=150, search__leaves_searched=5)
    searcher = build_searcher("scann", rows, config.search)
    asked, passages = Probes(rows, queries), passage_probes(rows, 100)
    first, with_passages = asked.recall(searcher), passages.recall(searcher)
    assert first < 0.9 and with_passages > 0.95
    assert widen_to_floor(searcher, asked, 0.95, first) >= 0.95
    assert searcher.plan["leaves_searched"] > 5
