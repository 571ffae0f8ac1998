"""Fusion of two rankings."""

import argparse

import numpy as np
import pytest

from realm_jax.cli import arguments
from realm_jax.errors import InputError
from realm_jax.retrieval import fusion
from realm_jax.retrieval.fusion import DENSE_WEIGHTS, NO_PASSAGE, Fusion

DENSE = (np.array([[4, 2, 7]]), np.array([[9.0, 5.0, 1.0]], np.float32))
WORDS = (np.array([[2, 8, NO_PASSAGE]]), np.array([[3.0, 2.0, 0.0]], np.float32))


def test_reciprocal_ranks_are_added():
    ids, scores = Fusion("reciprocal_rank", 0.5)(DENSE, WORDS, 4)
    assert ids.tolist() == [[2, 4, 8, 7]]
    expected = [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63]
    np.testing.assert_allclose(scores[0] * 2, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "weight", "words"),
    [
        ("rank", None, "reciprocal_rank"),
        ("weighted_sum", 2.0, "0 to 1"),
        ("weighted_sum", -0.1, "0"),
    ],
)
def test_other_kinds_and_shares_are_refused(kind, weight, words):
    with pytest.raises(InputError, match=words):
        Fusion(kind, weight)


def test_weighted_sum_scales_scores_of_each_ranking_to_0_to_1():
    ids, scores = Fusion("weighted_sum", 0.25)(DENSE, WORDS, 4)
    assert ids.tolist() == [[2, 4, 7, 8]]
    np.testing.assert_allclose(scores[0], [0.25 * 0.5 + 0.75, 0.25, 0, 0])


@pytest.mark.parametrize("kind", DENSE_WEIGHTS)
@pytest.mark.parametrize(("weight", "order"), [(1.0, [4, 2]), (0.0, [2])])
def test_with_all_weight_on_one_ranking_its_order_stays(kind, weight, order):
    ids, _ = Fusion(kind, weight)(DENSE, WORDS, 4)
    assert ids[0, : len(order)].tolist() == order


@pytest.mark.parametrize(("kind", "weight"), DENSE_WEIGHTS.items())
def test_each_kind_has_its_usual_weight_and_a_flag(kind, weight):
    for ours, given in zip(
        Fusion(kind)(DENSE, WORDS, 4), Fusion(kind, weight)(DENSE, WORDS, 4), strict=True
    ):
        np.testing.assert_array_equal(ours, given)
    parser = argparse.ArgumentParser()
    arguments.add_retriever(parser)
    assert arguments.fusion_of(parser.parse_args([])) == Fusion()
    assert arguments.fusion_of(parser.parse_args([f"--fusion={kind}"])) == Fusion(kind)
    help = " ".join(parser.format_help().split())
    assert str(weight) in help and set(DENSE_WEIGHTS) == set(_choices(parser, "fusion"))


def _choices(parser, name):
    (found,) = [action.choices for action in parser._actions if action.dest == name]
    return found


def test_rows_that_are_too_short_end_without_a_passage():
    nothing = (np.full((1, 2), NO_PASSAGE), np.zeros((1, 2), np.float32))
    for kind in DENSE_WEIGHTS:
        ids, scores = Fusion(kind)(nothing, WORDS, 3)
        assert ids.tolist() == [[2, 8, NO_PASSAGE]]
        assert scores[0, 2] == 0


def test_more_hits_do_not_change_the_order_of_the_best_passages():
    rng = np.random.default_rng(0)
    first, second = (_ranking(rng, 3000) for _ in range(2))
    fuse = Fusion()
    few = fuse(*(_first(ranked, 100) for ranked in (first, second)), 100)
    many = fuse(first, second, 3000)
    np.testing.assert_array_equal(few[0], many[0][:, :100])
    np.testing.assert_array_equal(few[1], many[1][:, :100])


def test_equal_scores_beyond_the_end_of_the_scale_are_worth_nothing():
    ids = np.arange(500)[None]
    ties = (ids, np.where(ids < 150, 2.0, 1.0).astype(np.float32))
    dense = _ranking(np.random.default_rng(0), 500)
    fuse = Fusion()
    few = fuse(_first(dense, 100), _first(ties, 100), 100)
    many = fuse(dense, ties, 500)
    np.testing.assert_array_equal(few[0], many[0][:, :100])
    np.testing.assert_array_equal(few[1], many[1][:, :100])


def test_passages_after_the_end_of_both_scales_are_last_by_their_better_place(monkeypatch):
    monkeypatch.setattr(fusion, "DEPTH", 2)
    first = (np.array([[1, 2, 3, 4]]), np.array([[4, 3, 1, 0]], np.float32))
    second = (np.array([[2, 5, 6, 3]]), np.array([[8, 4, 2, 1]], np.float32))
    ids, scores = Fusion(weight=0.5)(first, second, 6)
    assert ids.tolist() == [[1, 2, 5, 6, 3, 4]]
    np.testing.assert_allclose(scores[0], [0.5, 0.5, 0, -0.25, -0.375, -1.5])


def _ranking(rng, count):
    ids = rng.permutation(count)[None]
    return ids, np.sort(rng.normal(size=(1, count)).astype(np.float32))[:, ::-1]


def _first(ranked, count):
    return ranked[0][:, :count], ranked[1][:, :count]


def test_equal_scores_are_worth_one():
    same = (np.array([[5, 3]]), np.full((1, 2), 2.0, np.float32))
    ids, scores = Fusion(weight=1.0)(same, WORDS, 4)
    assert ids[0, :2].tolist() == [3, 5] and scores[0, :2].tolist() == [1, 1]
