"""Questions with answers, and the rows that teach a span reader (ORQA, REALM_FACTS 1.8)."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import Rows, joint_rows, query_rows
from realm_jax.errors import InputError
from realm_jax.text.wordpiece import WordPieces


@dataclass(frozen=True)
class Question:
    """A question, its accepted answers, and the passage known to hold one (-1: unknown)."""

    text: str
    answers: tuple[str, ...]
    evidence: int = -1


class QuestionBatch(NamedTuple):
    """Questions, the hits of each, and where the answers stand in them."""

    questions: Rows
    hits: Int64[Any, "B R"]  # passage ids
    vectors: Float32[Any, "B R E"]  # frozen passage vectors of the hits
    joint: Rows  # [B, R, J]
    gold: Bool[Any, "B R J W"]  # entry (i, w): pieces i .. i + w are an answer


def read_questions(path: str | Path) -> list[Question]:
    """JSON lines with `question`, `answers` and perhaps `evidence`.

    Raises:
      InputError: names the line that cannot be used.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("no question file", where=path, expected="JSON lines")
    questions = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        questions.append(_question(line, f"{path}:{number}"))
    if not questions:
        raise InputError("question file is empty", where=path, expected="JSON lines")
    return questions


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            "question file is not UTF-8", where=path, found=f"{error.reason} at byte {error.start}"
        ) from error


def _question(line: str, where: str) -> Question:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError("line is not JSON", where=where, found=str(error)) from error
    fits = isinstance(record, dict) and isinstance(record.get("question"), str)
    answers = record.get("answers") if fits else None
    if not fits or not isinstance(answers, list) or not answers:
        raise InputError(
            "line is not a question",
            where=where,
            expected='{"question": "...", "answers": ["...", ...]}',
            found=line[:200],
        )
    return Question(record["question"], tuple(map(str, answers)), record.get("evidence", -1))


def questions_hash(questions: list[Question]) -> str:
    """What a fine-tuning was done on."""
    return hashlib.sha256(repr(questions).encode()).hexdigest()[:16]


def question_rows(texts: list[str], words: WordPieces, length: int) -> Rows:
    """Rows of questions as typed."""
    return query_rows([ids for ids, _ in words.pieces(texts)], length, words)


def answer_spans(
    joint: Rows, answers: list[list[np.ndarray]], widest: int
) -> Bool[np.ndarray, "B R J W"]:
    """Every occurrence of any answer in the body of each joint row, as (first piece, width - 1).

    Args:
      joint: [B, R, J].
      answers: for each of the B questions, its answers in word pieces.
      widest: W, in pieces; longer answers are never gold.
    """
    size, hits, length = joint.ids.shape
    gold = np.zeros((size, hits, length, widest), bool)
    body = joint.mask & (joint.segments == 1)
    for row, accepted in enumerate(answers):
        for pieces in accepted:
            count = len(pieces)
            if not 1 <= count <= min(widest, length):
                continue
            windows = np.lib.stride_tricks.sliding_window_view(joint.ids[row], count, axis=-1)
            inside = np.lib.stride_tricks.sliding_window_view(body[row], count, axis=-1)
            found = (windows == pieces).all(-1) & inside.all(-1)
            gold[row, :, : found.shape[-1], count - 1] |= found
    return gold


class QuestionSource:
    """Questions joined with fixed hits: the index is frozen, so each question is searched once.

    Args:
      questions: to train on.
      hits: passage ids of each question's hits, best first.
      vectors: passage id -> frozen passage vector.
      store: the knowledge corpus.
      config: of the run.
    """

    def __init__(
        self,
        questions: list[Question],
        hits: Int64[np.ndarray, "N R"],
        vectors: Float[np.ndarray, "P E"],
        store: PassageStore,
        config: ConfigDict,
    ):
        self._hits, self._vectors, self._store = hits, vectors, store
        self._lengths = config.lengths
        words = store.vocabulary
        self._rows = question_rows([q.text for q in questions], words, config.lengths.query)
        self._answers = [[ids for ids, _ in words.pieces(list(q.answers))] for q in questions]

    def __len__(self) -> int:
        return len(self._answers)

    def take(self, numbers: Int64[np.ndarray, "B"]) -> QuestionBatch:
        """These questions as a batch."""
        questions = Rows(*(part[numbers] for part in self._rows))
        hits = self._hits[numbers]
        joint = joint_rows(questions, self._store, hits, self._lengths.joint)
        answers = [self._answers[number] for number in numbers]
        gold = answer_spans(joint, answers, self._lengths.answer)
        return QuestionBatch(questions, hits, self._vectors[hits].astype(np.float32), joint, gold)
