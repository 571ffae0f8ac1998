"""How answers are judged: exact match and recall (REALM section 4.2, REALM_FACTS 1.8)."""

import numpy as np
from jaxtyping import Bool, Int64

from realm_jax.data.question_files import Question
from realm_jax.text.answer_form import normalise_answer
from realm_jax.text.expression import Expression


def exact_match(prediction: str, answers: list[str]) -> bool:
    """Whether the prediction equals any of the answers once both are normalised."""
    return normalise_answer(prediction) in {normalise_answer(answer) for answer in answers}


def expression_match(prediction: str, expressions: list[Expression]) -> bool:
    """Whether any expression matches from the first character of the prediction on, as written.

    CuratedTREC's rule: the prediction is not normalised, and need not be used up.
    """
    return any(expression.begins(prediction) for expression in expressions)


def is_right(prediction: str, question: Question) -> bool:
    """Exact match by the rule that goes with the question's answers."""
    if question.expression:
        return expression_match(prediction, [Expression(answer) for answer in question.answers])
    return exact_match(prediction, list(question.answers))


def recall_at(
    hits: Int64[np.ndarray, "B K"], gold: Int64[np.ndarray, "B"], k: int
) -> Bool[np.ndarray, "B"]:
    """Whether the gold passage id is among the first k hits."""
    return (hits[:, :k] == gold[:, None]).any(1)
