"""A question with its answers, and the checks that every reader of question files makes."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from realm_jax.errors import InputError
from realm_jax.text.surrogates import UNPAIRED_SURROGATE

# ['Noregur' 'Norge'] as a text: an array or a list that was printed and saved as one answer.
_PRINTED_ARRAY = re.compile(r"""\s*\[\s*(['"]).*\1\s*\]\s*""", re.DOTALL)
# Escapes of characters or classes, repeated dots, and groups with alternatives. The letter of a
# class has no letter after it: \Windows and \beta are texts.
_EXPRESSION = re.compile(
    r"\\[dDwWsSbB](?![A-Za-z])|\\[.()\[\]?*+|]|\.[*+]|\(\?[:=!i<]|\([^()|]+\|[^()]*\)"
)


@dataclass(frozen=True)
class Question:
    """A question and its accepted answers.

    Attributes:
      text: the question.
      answers: texts or regular expressions.
      evidence: passage id known to contain an answer; -1 if unknown.
      expression: True if the answers are regular expressions.
      where: file and line, for errors.
    """

    text: str
    answers: tuple[str, ...]
    evidence: int = -1
    expression: bool = False
    where: str = field(default="", compare=False, repr=False)


def checked_question(where: str, text: Any, answers: Any, more: dict[str, Any]) -> Question:
    """A validated question."""
    if not isinstance(text, str) or not text.strip():
        raise invalid_question(where, "a question that is not empty", repr(text))
    if not isinstance(answers, list) or not answers:
        raise invalid_question(where, "a list of at least one answer in answers", repr(answers))
    if not all(map(_can_be_answer, answers)):
        raise invalid_question(where, "answers that are strings or numbers", repr(answers))
    texts = tuple(map(str, answers))
    if any(map(_PRINTED_ARRAY.fullmatch, texts)):
        raise printed_array(where, repr(answers))
    if not more.get("expression") and any(map(_EXPRESSION.search, texts)):
        raise InputError(
            "the answer looks like a regular expression, and would be compared as text",
            where=where,
            expected="the text of an answer",
            found=repr(answers)[:200],
            fix="give expressions as a TSV file with --format=trec; in a text, leave out "
            "backslashes and alternatives",
        )
    if not all(answer.strip() for answer in texts):
        raise invalid_question(where, "answers that are not empty", repr(answers))
    evidence = more.get("evidence", -1)
    if not isinstance(evidence, int) or isinstance(evidence, bool) or evidence < -1:
        expected = "evidence that is a passage id, or -1 if unknown"
        raise invalid_question(where, expected, repr(evidence))
    if any(map(UNPAIRED_SURROGATE.search, (text, *texts))):
        raise invalid_question(where, "Unicode text", "an unpaired surrogate")
    return Question(text.strip(), texts, **more, where=where)


def _can_be_answer(answer: Any) -> bool:
    """Whether a value is a text or a number; NaN and booleans are neither."""
    number = isinstance(answer, int | float) and not isinstance(answer, bool)
    return isinstance(answer, str) or (number and math.isfinite(answer))


def printed_array(where: str, found: str) -> InputError:
    return InputError(
        "the answers are a printed array, not a list",
        where=where,
        expected="a list with commas, such as ['Noregur', 'Norge']",
        found=found[:200],
        fix="convert arrays before saving: frame['answer'] = frame['answer'].map(list)",
    )


def invalid_question(where: str, expected: str, found: str) -> InputError:
    return InputError(
        "not a question with answers", where=where, expected=expected, found=found[:200]
    )


def check_evidence(questions: Iterable[Question], passages: int) -> None:
    """Checks that the evidence of questions is in a corpus of N passages.

    Raises:
      InputError: it is not; the message names file and line.
    """
    for question in questions:
        if question.evidence >= passages:
            raise InputError(
                "evidence is not a passage of the knowledge corpus",
                where=question.where,
                expected=f"a passage id from 0 to {passages - 1}, or -1 if unknown",
                found=question.evidence,
            )
