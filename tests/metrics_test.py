"""Exact match with the usual answer normalisation, regular-expression answers, and recall."""

import numpy as np
import pytest

from realm_jax.data.question_checks import Question
from realm_jax.metrics import answer_f1, exact_match, expression_match, is_right, recall_at
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
        ("FEBRUARY 3", True),  # a prefix of the prediction suffices
        ("in February", False),  # the match must start at the first character
        ("2\nFebruary", False),
        ("", False),
    ],
)
def test_an_expression_matches_from_the_start_of_the_prediction_as_written(prediction, right):
    assert expression_match(prediction, [Expression("Sept?(ember)?|Feb(ruary)?")]) is right
    question = Question("when?", ("Sept?(ember)?", "Feb(ruary)?"), expression=True)
    assert is_right(prediction, question) is right


def test_the_question_selects_exact_match_or_expression_match():
    assert is_right("the Rhine!", Question("which?", ("Rhine",)))
    assert not is_right("the Rhine!", Question("which?", ("Rhine",), expression=True))
    assert not is_right("Rhine", Question("which?", ("Rh.ne",)))
    assert is_right("Rhine", Question("which?", ("Rh.ne",), expression=True))


def test_recall_at_k_uses_only_the_first_k_hits():
    hits = np.array([[4, 7, 1], [2, 3, 9]])
    gold = np.array([7, 9])
    assert recall_at(hits, gold, 1).tolist() == [False, False]
    assert recall_at(hits, gold, 2).tolist() == [True, False]
    assert recall_at(hits, gold, 3).tolist() == [True, True]


@pytest.mark.parametrize(
    ("prediction", "answers", "f1"),
    [
        ("the River Rhine", ("Rhine",), 2 / 3),
        ("the Rhine.", ("Elbe", "Rhine"), 1.0),
        ("Rhine Rhine", ("Rhine",), 2 / 3),
        ("Elbe", ("Rhine",), 0.0),
        ("", ("Rhine",), 0.0),
        ("the", ("a",), 1.0),  # both are empty after normalisation
    ],
)
def test_f1_counts_shared_words_of_the_best_answer(prediction, answers, f1):
    assert answer_f1(prediction, Question("which?", answers)) == pytest.approx(f1)


def test_f1_of_a_regular_expression_is_its_match():
    question = Question("when?", ("Feb(ruary)?",), expression=True)
    assert answer_f1("February 3", question) == 1.0
    assert answer_f1("in February", question) == 0.0
