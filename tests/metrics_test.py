"""Exact match as the open-QA literature computes it, and recall."""

import numpy as np
import pytest

from realm_jax.data.question_files import Question
from realm_jax.metrics import exact_match, expression_match, is_right, recall_at
from realm_jax.text.expression import Expression


def test_exact_match_accepts_any_of_the_answers():
    assert exact_match("the Danube.", ["Rhine", "Danube"])
    assert exact_match("Zu\u0308rich", ["Zürich"])
    assert not exact_match("Danube river", ["Danube"])
    assert not exact_match("Danube", [])


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        ("Feb", True),
        ("FEBRUARY 3", True),  # need not be used up
        ("in February", False),  # from the first character on
        ("2\nFebruary", False),
        ("", False),
    ],
)
def test_an_expression_matches_from_the_start_of_the_prediction_as_written(prediction, right):
    assert expression_match(prediction, [Expression("Sept?(ember)?|Feb(ruary)?")]) is right
    question = Question("when?", ("Sept?(ember)?", "Feb(ruary)?"), expression=True)
    assert is_right(prediction, question) is right


def test_the_rule_goes_with_the_question():
    assert is_right("the Rhine!", Question("which?", ("Rhine",)))
    assert not is_right("the Rhine!", Question("which?", ("Rhine",), expression=True))
    assert not is_right("Rhine", Question("which?", ("Rh.ne",)))
    assert is_right("Rhine", Question("which?", ("Rh.ne",), expression=True))


def test_recall_looks_at_the_first_k_only():
    hits = np.array([[4, 7, 1], [2, 3, 9]])
    gold = np.array([7, 9])
    assert recall_at(hits, gold, 1).tolist() == [False, False]
    assert recall_at(hits, gold, 2).tolist() == [True, False]
    assert recall_at(hits, gold, 3).tolist() == [True, True]
