"""Exact match as the open-QA literature computes it, and recall."""

import numpy as np
import pytest

from realm_jax.metrics import exact_match, normalise_answer, recall_at


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles", "beatles"),
        ("a  an the", ""),
        ("theatre", "theatre"),
        ("  U.S.A. ", "usa"),
        ("rock-'n'-roll!", "rocknroll"),
        ("Zürich", "zu\u0308rich"),
        ("Zu\u0308rich", "zu\u0308rich"),
        ("東京", "東京"),
    ],
)
def test_normalisation(text, normal):
    assert normalise_answer(text) == normal


def test_exact_match_accepts_any_of_the_answers():
    assert exact_match("the Danube.", ["Rhine", "Danube"])
    assert exact_match("Zu\u0308rich", ["Zürich"])
    assert not exact_match("Danube river", ["Danube"])
    assert not exact_match("Danube", [])


def test_recall_looks_at_the_first_k_only():
    hits = np.array([[4, 7, 1], [2, 3, 9]])
    gold = np.array([7, 9])
    assert recall_at(hits, gold, 1).tolist() == [False, False]
    assert recall_at(hits, gold, 2).tolist() == [True, False]
    assert recall_at(hits, gold, 3).tolist() == [True, True]
