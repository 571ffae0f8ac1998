"""Exact match and recall of a finished run over questions, with and without retrieval."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from realm_jax.data.answers import Accepted, accepted, contains_answer
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.open_qa import Question, answer_spans, question_rows
from realm_jax.data.padding import padded_indices
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows
from realm_jax.inference.answerer import Answer, Answerer
from realm_jax.inference.prediction_file import PredictionFile
from realm_jax.metrics import answer_f1, is_right

_BATCH = 64
_RECALLS = (1, 5, 20, 100)
_LOG_EVERY = 16 * _BATCH  # questions between two log lines

log = logging.getLogger(__name__)


def evaluate(
    answerer: Answerer, questions: list[Question], predictions: PredictionFile | None = None
) -> dict[str, Any]:
    """Answers questions and measures how often the answers are right.

    Args:
      answerer: of a finished run.
      questions: with accepted answers.
      predictions: gets one line per question while the evaluation runs; None: no file.

    Returns:
      questions: number of questions.
      exact_match: share of questions whose answer is an accepted one.
      f1: mean over questions of the words shared with the best accepted answer (SQuAD's F1).
      recall_at: by k, share of questions with an accepted answer in the text of the k best
        passages.
      reader_oracle: share of questions for which the passages read have a span with an accepted
        answer.
      evidence_recall_at: by k, share of questions whose evidence passage is among the k best, over
        questions with known evidence; empty if there are none.
    """
    judged = judge(answerer, questions, predictions)
    known = [one.evidence_rank for one in judged if one.question.evidence >= 0]
    return {
        "questions": len(judged),
        "exact_match": float(np.mean([one.right for one in judged])),
        "f1": float(np.mean([one.f1 for one in judged])),
        "recall_at": _recall([one.answer_rank for one in judged]),
        "reader_oracle": float(np.mean([one.readable for one in judged])),
        "evidence_recall_at": _recall(known) if known else {},
    }


@dataclass(frozen=True)
class Judged:
    """A question with its answer; ranks count from 1, None: not among the retrieved passages.

    Attributes:
      question: with accepted answers.
      answer: of the model.
      right: whether it is an accepted answer; False if there is none, as without a reader.
      readable: whether a span of the passages read is an accepted answer.
      answer_rank: of the first passage whose text has an accepted answer.
      evidence_rank: of the passage that is known to state the fact.
    """

    question: Question
    answer: Answer
    right: bool
    readable: bool
    answer_rank: int | None
    evidence_rank: int | None

    @property
    def f1(self) -> float:
        """SQuAD's F1; 0 without an answer, also if an accepted one, as `The`, has no words."""
        return answer_f1(self.answer.answer, self.question) if self.answer.answer else 0.0

    def as_dict(self) -> dict[str, Any]:
        answer = self.answer.as_dict()
        return {
            "question": self.question.text,
            "answers": self.question.answers,
            "prediction": answer["answer"],
            "probability": answer["probability"],
            "right": self.right,
            "reader_oracle": self.readable,
            "answer_rank": self.answer_rank,
            "passages": answer["passages"],
        }


def judge(
    answerer: Answerer,
    questions: list[Question],
    predictions: PredictionFile | None = None,
    deepest: int = max(_RECALLS),
) -> list[Judged]:
    """Answers questions and compares each answer; see `evaluate`.

    Ranks are looked for in the `deepest` best passages. Fewer are faster, because the text of each
    passage is searched for the answers.
    """
    judged: list[Judged] = []
    for start in range(0, len(questions), _BATCH):
        batch = _judge(answerer, questions[start : start + _BATCH], deepest)
        judged += batch
        if predictions is not None:
            predictions.write(one.as_dict() for one in batch)
        if len(judged) % _LOG_EVERY == 0:
            log.info("%d of %d questions answered", len(judged), len(questions))
    return judged


def _judge(answerer: Answerer, questions: list[Question], deepest: int) -> list[Judged]:
    texts = [question.text for question in questions]
    padded = [texts[i] for i in padded_indices(len(texts), _BATCH)]
    rows = question_rows(padded, answerer.store.vocabulary, answerer.config.lengths.query)
    read = answerer.config.stages.qa.reader_passages
    found, scores = answerer.retrieve(padded, rows, max(deepest, read))
    given = answerer.read(padded, rows, found[:, :read], scores[:, :read])[: len(texts)]
    answers = [accepted(question) for question in questions]
    real_rows = Rows(*(part[: len(texts)] for part in rows))
    readable = _readable(answerer, real_rows, given, answers)
    return [
        Judged(
            question=question,
            answer=given[i],
            right=bool(given[i].answer) and is_right(given[i].answer, question),
            readable=bool(readable[i]),
            answer_rank=_answer_rank(answerer, answers[i], found[i, :deepest]),
            evidence_rank=_rank(found[i, :deepest] == question.evidence),
        )
        for i, question in enumerate(questions)
    ]


def _readable(
    answerer: Answerer, rows: Rows, given: list[Answer], accepted_answers: list[Accepted]
) -> np.ndarray:
    """Whether a span in the passages read is an accepted answer, [B]."""
    read = np.array([[passage.id for passage in one.passages] for one in given], np.int64)
    lengths, store = answerer.config.lengths, answerer.store
    joint = joint_rows(rows, store, read, lengths.joint)
    gold = answer_spans(joint, read, accepted_answers, store, lengths.answer)
    return np.asarray(gold.any((1, 2, 3)))


def _answer_rank(answerer: Answerer, answers: Accepted, found: np.ndarray) -> int | None:
    """Rank of the first passage whose text has an accepted answer."""
    for rank, passage in enumerate(found.tolist(), 1):
        if contains_answer(answers, answerer.store, passage):
            return rank
    return None


def _rank(is_evidence: np.ndarray) -> int | None:
    return int(is_evidence.argmax()) + 1 if is_evidence.any() else None


def _recall(ranks: list[int | None]) -> dict[str, float]:
    return {
        str(k): float(np.mean([rank is not None and rank <= k for rank in ranks])) for k in _RECALLS
    }


def closed_book(answerer: Answerer, text: MaskedText) -> float:
    """Exact match of the pre-trained reader on masked sentences with only the null passage.

    This is an upper bound on what the model answers without retrieval, because the masks show how
    many word pieces the answer has.
    """
    null = np.full((len(text.source), 1), NULL_PASSAGE, np.int64)
    joint = joint_rows(text.queries, answerer.store, null, answerer.config.lengths.joint)

    rows = Rows(*(part[:, 0] for part in joint))
    guesses = answerer.networks.log_probabilities(rows, text.positions).argmax(-1)
    right = (guesses == text.targets) | (text.weights == 0)
    return float(right.all(-1).mean())
