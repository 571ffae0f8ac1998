"""Fusion of two rankings."""

import numpy as np
import pytest

from realm_jax.retrieval.fusion import KINDS, NO_PASSAGE, Fusion

DENSE = (np.array([[4, 2, 7]]), np.array([[9.0, 5.0, 1.0]], np.float32))
WORDS = (np.array([[2, 8, NO_PASSAGE]]), np.array([[3.0, 2.0, 0.0]], np.float32))


def test_reciprocal_ranks_are_added():
    ids, scores = Fusion("reciprocal_rank", 0.5)(DENSE, WORDS, 4)
    assert ids.tolist() == [[2, 4, 8, 7]]
    expected = [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63]
    np.testing.assert_allclose(scores[0] * 2, expected, rtol=1e-6)


def test_weighted_sum_scales_scores_of_each_ranking_to_0_to_1():
    ids, scores = Fusion("weighted_sum", 0.25)(DENSE, WORDS, 4)
    assert ids.tolist() == [[2, 4, 7, 8]]
    np.testing.assert_allclose(scores[0], [0.25 * 0.5 + 0.75, 0.25, 0, 0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("weight", "order"), [(1.0, [4, 2]), (0.0, [2])])
def test_with_all_weight_on_one_ranking_its_order_stays(kind, weight, order):
    ids, _ = Fusion(kind, weight)(DENSE, WORDS, 4)
    assert ids[0, : len(order)].tolist() == order


def test_rows_that_are_too_short_end_without_a_passage():
    nothing = (np.full((1, 2), NO_PASSAGE), np.zeros((1, 2), np.float32))
    for kind in KINDS:
        ids, scores = Fusion(kind)(nothing, WORDS, 3)
        assert ids.tolist() == [[2, 8, NO_PASSAGE]]
        assert scores[0, 2] == 0
