"""Evaluation metrics: exact match of answers (REALM section 4.2) and recall of passages."""

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
