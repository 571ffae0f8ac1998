"""Metrics: exact match (REALM section 4.2) and F1 of answers, and recall of passages."""

from collections import Counter

import numpy as np
from jaxtyping import Bool, Int64

from realm_jax.data.question_checks import Question
from realm_jax.text.answer_form import normalise_answer
from realm_jax.text.expression import Expression


def exact_match(prediction: str, answers: list[str]) -> bool:
    """Whether the normalised prediction equals any normalised answer (SQuAD normalisation)."""
    return normalise_answer(prediction) in {normalise_answer(answer) for answer in answers}


def expression_match(prediction: str, expressions: list[Expression]) -> bool:
    """Whether any expression matches a prefix of the prediction (the CuratedTREC scorer).

    The prediction is not normalised.
    """
    return any(expression.begins(prediction) for expression in expressions)


def is_right(prediction: str, question: Question) -> bool:
    """Whether the prediction is correct, by the match rule of the question's dataset."""
    if question.expression:
        return expression_match(prediction, [Expression(answer) for answer in question.answers])
    return exact_match(prediction, list(question.answers))


def answer_f1(prediction: str, question: Question) -> float:
    """SQuAD's F1: words that prediction and answer share; the best of all answers, 0 to 1.

    Regular expressions have no words: 1 if one matches, else 0.
    """
    if question.expression:
        return float(is_right(prediction, question))
    return max((_word_f1(prediction, answer) for answer in question.answers), default=0.0)


def _word_f1(prediction: str, answer: str) -> float:
    ours, theirs = (Counter(normalise_answer(text).split()) for text in (prediction, answer))
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def recall_at(
    hits: Int64[np.ndarray, "B K"], gold: Int64[np.ndarray, "B"], k: int
) -> Bool[np.ndarray, "B"]:
    """Whether the gold passage is among the first k hits of each query.

    Args:
      hits: passage ids, best first.
      gold: one passage id per query.
      k: number of hits to search.
    """
    return (hits[:, :k] == gold[:, None]).any(1)
