"""Batches for open-QA fine-tuning: questions, hits and gold answer spans (ORQA section 4)."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.answers import Accepted, accepted, contains_answer
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.question_checks import Question
from realm_jax.data.rows import Rows, joint_rows, query_rows
from realm_jax.text.wordpiece import WordPieces


class QuestionBatch(NamedTuple):
    """Questions, the hits of each question, and the answer spans in these hits."""

    questions: Rows  # of the embedder
    hits: Int64[Any, "B R"]  # passage ids
    vectors: Float32[Any, "B R E"]  # frozen passage vectors of the hits
    joint: Rows  # [B, R, J]
    gold: Bool[Any, "B R J W"]  # entry (i, w): tokens i .. i + w are an answer
    has_answer: Bool[Any, "B R"]  # also wider than W or after J, as `realm eval` counts them


def questions_hash(questions: list[Question]) -> str:
    """A checksum of the questions, which identifies the data of a fine-tuning run."""
    return hashlib.sha256(repr(questions).encode()).hexdigest()[:16]


def question_rows(texts: list[str], words: WordPieces, length: int) -> Rows:
    """Tokenised questions as query rows [B, L]."""
    return query_rows([ids for ids, _ in words.pieces(texts)], length, words)


def answer_spans(
    joint: Rows,
    hits: Int64[np.ndarray, "B R"],
    answers: list[Accepted],
    store: PassageStore,
    widest: int,
) -> Bool[np.ndarray, "B R J W"]:
    """Gold answer spans in each joint row, indexed by (first token, width - 1).

    Args:
      joint: rows [B, R, J].
      hits: passage id of each row.
      answers: the accepted answers of each question.
      store: the knowledge corpus.
      widest: W, in tokens. Longer answers, and answers cut off by the row, are not gold.
    """
    gold = np.zeros((*joint.ids.shape, widest), bool)
    in_body = joint.mask & (joint.segments == 1)
    starts, rooms = in_body.argmax(-1), in_body.sum(-1) - 1  # without the closing [SEP]
    for row, accepted_here in enumerate(answers):
        for hit, passage in enumerate(hits[row].tolist()):
            body = store.body(passage)
            if not accepted_here.may_be_in(body):
                continue
            offsets = store.body_offsets(passage)[: rooms[row, hit]]
            for first, last in accepted_here.spans(body, offsets, widest):
                gold[row, hit, starts[row, hit] + first, last - first] = True
    return gold


class QuestionSource:
    """Questions with fixed hits: the index is frozen, so each question is searched once.

    Args:
      questions: training questions.
      hits: passage ids of the hits of each question, best first.
      vectors: frozen passage vectors, indexed by passage id.
      store: the knowledge corpus.
      config: the run's config.
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
        texts = [question.text for question in questions]
        self._rows = question_rows(texts, store.vocabulary, config.lengths.query)
        self._embedded = EmbedderRows(config, store.vocabulary).queries(self._rows)
        self._answers = [accepted(question) for question in questions]

    def __len__(self) -> int:
        return len(self._answers)

    def take(self, numbers: Int64[np.ndarray, "B"]) -> QuestionBatch:
        """The batch of the questions with these numbers."""
        questions = Rows(*(part[numbers] for part in self._rows))
        hits = self._hits[numbers]
        joint = joint_rows(questions, self._store, hits, self._lengths.joint)
        answers = [self._answers[number] for number in numbers]
        gold = answer_spans(joint, hits, answers, self._store, self._lengths.answer)
        embedded = Rows(*(part[numbers] for part in self._embedded))
        has_answer = [
            [contains_answer(one, self._store, passage) for passage in row]
            for one, row in zip(answers, hits.tolist(), strict=True)
        ]
        vectors = self._vectors[hits].astype(np.float32)
        return QuestionBatch(embedded, hits, vectors, joint, gold, np.array(has_answer, bool))
