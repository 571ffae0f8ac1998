"""Exact search in blocks of rows and groups of queries equals a sort of all scores."""

import numpy as np
import pytest

from realm_jax.retrieval import exact_searcher
from realm_jax.retrieval.exact_searcher import ExactSearcher


@pytest.mark.parametrize("k", [1, 7, 50, 90])
@pytest.mark.parametrize("block", [16, 64, 1000])
def test_blocks_and_groups_do_not_change_hits_and_ties_go_to_the_lower_row(monkeypatch, block, k):
    monkeypatch.setattr(exact_searcher, "BLOCK", block)
    monkeypatch.setattr(exact_searcher, "GROUP", 5)
    random = np.random.default_rng(k)
    vectors = random.integers(-2, 3, (90, 4)).astype(np.float32)  # many equal scores
    queries = random.integers(-2, 3, (13, 4)).astype(np.float32)
    scores = queries @ vectors.T
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    rows, found = ExactSearcher(vectors).search(queries, k)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(scores, expected, 1))


def test_a_later_row_replaces_a_hit_in_every_group(monkeypatch):
    """Rows get better to the end, so each block has better ones than all before."""
    monkeypatch.setattr(exact_searcher, "BLOCK", 8)
    vectors = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    rows, _ = ExactSearcher(vectors).search(np.array([[1], [-1], [2]], np.float32), 3)
    np.testing.assert_array_equal(rows, [[49, 48, 47], [0, 1, 2], [49, 48, 47]])


def test_no_queries_have_no_hits():
    rows, scores = ExactSearcher(np.ones((9, 2), np.float32)).search(np.ones((0, 2), np.float32), 3)
    assert (rows.shape, scores.shape) == ((0, 3), (0, 3))
    assert (rows.dtype, scores.dtype) == (np.int32, np.float32)
