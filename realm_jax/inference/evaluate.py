"""How well a run answers: exact match and recall of questions, and what it knows by heart."""

import json
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from etils import epath

from realm_jax.data.answers import Accepted, accepted, contains_answer
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.open_qa import Question, answer_spans, question_rows
from realm_jax.data.padding import padded_indices
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows
from realm_jax.inference.answerer import Answer, Answerer
from realm_jax.metrics import is_right
from realm_jax.storage import files

_BATCH = 64
_RECALLS = (1, 5, 20, 100)
_TELL_EVERY = 16 * _BATCH  # questions between lines of progress

log = logging.getLogger(__name__)


def evaluate(
    answerer: Answerer, questions: list[Question], predictions: epath.PathLike | None = None
) -> dict[str, Any]:
    """Exact match over questions, and how far the passages made it possible.

    Args:
      answerer: of a finished run.
      questions: with accepted answers.
      predictions: a file for one JSON line per question, or None.

    Returns:
      `questions`; `exact_match`; `recall_at` k: an answer is said in one of the first k passages
      retrieved; `reader_oracle`: the reader could have chosen a span that says an answer;
      `evidence_recall_at` k: the passage known to hold an answer is among the first k, over the
      questions that have one ({} if none has).
    """
    judged: list[_Judged] = []
    for start in range(0, len(questions), _BATCH):
        judged += _judge(answerer, questions[start : start + _BATCH])
        if len(judged) % _TELL_EVERY == 0:
            log.info("%d of %d questions", len(judged), len(questions))
    if predictions is not None:
        lines = [json.dumps(one.as_dict(), ensure_ascii=False) + "\n" for one in judged]
        files.write_bytes(epath.Path(predictions), "".join(lines).encode())
    known = [one.evidence_rank for one in judged if one.question.evidence >= 0]
    return {
        "questions": len(judged),
        "exact_match": float(np.mean([one.right for one in judged])),
        "recall_at": _recall([one.answer_rank for one in judged]),
        "reader_oracle": float(np.mean([one.readable for one in judged])),
        "evidence_recall_at": _recall(known) if known else {},
    }


@dataclass(frozen=True)
class _Judged:
    """A question with what was said; ranks count from 1, None is not among those retrieved."""

    question: Question
    said: Answer
    right: bool
    readable: bool
    answer_rank: int | None
    evidence_rank: int | None

    def as_dict(self) -> dict[str, Any]:
        said = self.said.as_dict()
        return {
            "question": self.question.text,
            "answers": self.question.answers,
            "prediction": said["answer"],
            "probability": said["probability"],
            "right": self.right,
            "reader_oracle": self.readable,
            "answer_rank": self.answer_rank,
            "passages": said["passages"],
        }


def _judge(answerer: Answerer, questions: list[Question]) -> list[_Judged]:
    texts = [question.text for question in questions]
    padded = [texts[i] for i in padded_indices(len(texts), _BATCH)]
    rows = question_rows(padded, answerer.store.vocabulary, answerer.config.lengths.query)
    found, scores = answerer.retrieve(rows, max(_RECALLS))
    read = answerer.config.stages.qa.reader_passages
    said = answerer.read(padded, rows, found[:, :read], scores[:, :read])[: len(texts)]
    answers = [accepted(question) for question in questions]
    own_rows = Rows(*(part[: len(texts)] for part in rows))
    readable = _readable(answerer, own_rows, said, answers)
    return [
        _Judged(
            question=question,
            said=said[i],
            right=is_right(said[i].answer, question),
            readable=bool(readable[i]),
            answer_rank=_first_saying(answerer, answers[i], found[i]),
            evidence_rank=_rank(found[i] == question.evidence),
        )
        for i, question in enumerate(questions)
    ]


def _readable(
    answerer: Answerer, rows: Rows, said: list[Answer], answers: list[Accepted]
) -> np.ndarray:
    """Whether a span that the reader may choose in the passages it read says an answer, [B]."""
    read = np.array([[passage.id for passage in one.passages] for one in said], np.int64)
    lengths, store = answerer.config.lengths, answerer.store
    joint = joint_rows(rows, store, read, lengths.joint)
    gold = answer_spans(joint, read, answers, store, lengths.answer)
    return np.asarray(gold.any((1, 2, 3)))


def _first_saying(answerer: Answerer, answers: Accepted, found: np.ndarray) -> int | None:
    for rank, passage in enumerate(found.tolist(), 1):
        if contains_answer(answers, answerer.store, passage):
            return rank
    return None


def _rank(is_it: np.ndarray) -> int | None:
    return int(is_it.argmax()) + 1 if is_it.any() else None


def _recall(ranks: list[int | None]) -> dict[str, float]:
    return {
        str(k): float(np.mean([rank is not None and rank <= k for rank in ranks])) for k in _RECALLS
    }


def closed_book(answerer: Answerer, text: MaskedText) -> float:
    """Exact match of the pre-trained reader on masked sentences with no passage but the null one.

    A generous bound on what the model knows by heart: it is told how many pieces the answer has.
    """
    null = np.full((len(text.source), 1), NULL_PASSAGE, np.int64)
    joint = joint_rows(text.queries, answerer.store, null, answerer.config.lengths.joint)

    rows = Rows(*(part[:, 0] for part in joint))
    guesses = answerer.networks.log_probabilities(rows, text.positions).argmax(-1)
    right = (guesses == text.targets) | (text.weights == 0)
    return float(right.all(-1).mean())
