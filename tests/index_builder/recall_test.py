"""Recall of an index, which decides whether it is published."""

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.index_builder.recall import probe_recall
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
        assert probe_recall(searcher, nearly_one, config.builder) == 1.0


def test_hits_with_clearly_lower_scores_reduce_recall(spread):
    config = tiny_config()
    assert (
        probe_recall(build_searcher("exact", spread, config.search), spread, config.builder) == 1.0
    )
    worst = build_searcher("exact", -spread, config.search)
    assert probe_recall(worst, spread, config.builder) == 0.0
