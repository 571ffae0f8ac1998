"""Answers questions with the export of a finished run, and shows the passages it read."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from ml_collections import ConfigDict

from realm_jax.artifacts.corpus_change import corpus_change, rebuild_command
from realm_jax.artifacts.current_index import (
    CurrentIndex,
    check_coverage,
    open_current,
    up_to_date_command,
)
from realm_jax.artifacts.export import Export, read_export
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.artifacts.run_config import NO_PATHS, Paths, open_knowledge, run_config
from realm_jax.corpus.store import PassageStore
from realm_jax.data.open_qa import question_rows
from realm_jax.data.rows import Rows, joint_rows
from realm_jax.errors import InputError
from realm_jax.inference.evidence import Displayable, Evidence
from realm_jax.inference.finder import Embed, Finder, WordIndex, relevance
from realm_jax.inference.networks import Networks
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.retrieval.fusion import Fusion, Ranked
from realm_jax.storage.layout import RunDir

_MAX_CHARACTERS = 2000  # of a question; longer questions are refused, not truncated


@dataclass(frozen=True)
class Answer(Displayable):
    """An answer with its evidence.

    Attributes:
      question: as asked.
      answer: text of the best span.
      probability: softmax over the spans of all passages read, summed over spans with this text.
      index_step: of the index that was searched.
      passages: read for the answer, best first.
    """

    question: str
    answer: str
    probability: float
    index_step: int
    passages: list[Evidence]

    @property
    def headline(self) -> str:
        """See `Displayable`."""
        if not self.answer:
            return "no answer: this run has no reader for questions; the passages found are"
        return f"{self.answer}   p {self.probability:.3f}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return asdict(self)


class Answerer:
    """The export of a run with its index and corpus; open it once and use it for many questions.

    Passages are found by their vectors; `by` changes that. Their relevance scores, and so p(z|x),
    are those of the embedder however they were found.

    Args:
      run: the run folder.
      export: its newest export.
      config: of the run.
      current: the index of the export and the corpus.
    """

    def __init__(self, run: RunDir, export: Export, config: ConfigDict, current: CurrentIndex):
        self.run, self.export, self.config, self.current = run, export, config, current
        self.networks = Networks(run, export, self.config, self.store.vocabulary)
        self._words = WordIndex()
        self._finder = Finder()

    @property
    def index(self) -> PublishedIndex:
        """See `CurrentIndex`."""
        return self.current.index

    @property
    def store(self) -> PassageStore:
        """The corpus."""
        return self.current.store

    def bm25(self) -> Bm25:
        """The BM25 index of the corpus; the first call opens or builds it."""
        return self._words.of(self.store)

    @property
    def question_embedder(self) -> str:
        """The network that embeds questions.

        A run that starts from an encoder of questions (`model.like_start`) needs no fine-tuning.
        """
        tuned = not self.config.model.like_start or self.networks.has("question_embedder")
        return "question_embedder" if tuned else "embedder"

    @property
    def takes_questions(self) -> bool:
        """Whether it can be asked questions; if false, the run only fills blanks."""
        return self.networks.has(self.question_embedder)

    @classmethod
    def open(cls, workdir: str, paths: Paths = NO_PATHS) -> "Answerer":
        """Opens the newest export of a run, its index and its knowledge corpus.

        Passages that changed after the index was brought up to date are not found: see the warning.

        Args:
          workdir: the run folder.
          paths: dotted config key -> path, for inputs that are elsewhere on this machine, as in
            `{"corpus.knowledge": "/data/wiki"}`.

        Raises:
          InputError: the run is not finished, or the index of its export was deleted.
          DamageError: a file is damaged; the message names it.
          MismatchError: the corpus has changed since the index was built.
        """
        run = RunDir(workdir)
        export = read_export(run)
        config = run_config(run, export.config_json, f"export of step {export.step}", paths)
        store = open_knowledge(run, config)
        change = corpus_change(run, export.index_step, store)
        if change is not None:
            raise change.error(rebuild_command(workdir, paths))
        current = open_current(run, export.index_step, store, {"dims": config.model.embedding})
        check_coverage(current, up_to_date_command(workdir, paths))
        return cls(run, export, config, current)

    def over(self, current: CurrentIndex) -> "Answerer":
        """Returns an answerer with the same compiled networks and another version of the index."""
        other = copy.copy(self)
        other.current = current
        current.store.vocabulary = self.store.vocabulary  # the same file: do not load it again
        return other

    def by(self, retriever: str, fusion: Fusion | None = None) -> "Answerer":
        """Returns an answerer that finds passages in another way.

        Args:
          retriever: one of `fusion.RETRIEVERS`.
          fusion: of a hybrid retriever; None: that of this answerer.

        Raises:
          InputError: there is no such retriever.
        """
        other = copy.copy(self)
        other._finder = Finder(retriever, fusion or self._finder.fusion)
        return other

    def ask(self, question: str, k: int | None = None) -> Answer:
        """Answers with the best span of the `k` best passages.

        Args:
          question: not truncated.
          k: passages to read; None: `stages.qa.reader_passages`.

        Raises:
          InputError: the question is empty or too long, or the run was not fine-tuned.
        """
        self.check_fits(question)
        return self.ask_all([question], k)[0]

    def check_fits(self, question: str) -> None:
        """Raises InputError if a question is empty or would be truncated."""
        _check_question(question)
        most = self.config.lengths.query - 2
        count = len(self.store.vocabulary.pieces([question])[0][0])
        if count > most:
            raise InputError(
                "the question is too long",
                expected=f"at most {most} word pieces (lengths.query)",
                found=count,
            )

    def ask_all(self, questions: list[str], k: int | None = None) -> list[Answer]:
        """Answers questions in one batch; long questions are truncated, as in training."""
        for question in questions:
            _check_question(question)
        rows = question_rows(questions, self.store.vocabulary, self.config.lengths.query)
        k = k or self.config.stages.qa.reader_passages
        found, scores = self.retrieve(questions, rows, k)
        return self.read(questions, rows, found, scores)

    def retrieve(
        self, questions: list[str], rows: Rows, k: int
    ) -> tuple[Int64[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """Passage ids and relevance scores of the k best passages, best first; k is cut to N.

        Args:
          questions: texts.
          rows: their rows [B, Q].
          k: number of passages.
        """
        vectors = self.networks.query_vectors(self.question_embedder, rows)
        found, _ = self.find(questions, lambda: vectors, k)
        products = relevance(self.index, vectors, found)
        return found, self.networks.scores(self.question_embedder, products)

    @property
    def retriever(self) -> str:
        """How passages are found; one of `fusion.RETRIEVERS`."""
        return self._finder.retriever

    def query_vectors(
        self, texts: list[str], length: int | None = None
    ) -> Float32[np.ndarray, "B E"]:
        """Embeds texts, truncated to `length` or else `lengths.query`.

        With the fine-tuned embedder, or the only one of the run. Each length is compiled once.
        """
        rows = question_rows(texts, self.store.vocabulary, length or self.config.lengths.query)
        tuned = self.networks.has("question_embedder")
        return self.networks.query_vectors("question_embedder" if tuned else "embedder", rows)

    def find(self, texts: Sequence[str], embed: Embed, k: int) -> Ranked:
        """Ids and scores of passages; see `Finder.find`."""
        return self._finder.find(self.current, self.bm25, texts, embed, k)

    def read(
        self,
        questions: list[str],
        rows: Rows,
        found: Int64[np.ndarray, "B T"],
        scores: Float32[np.ndarray, "B T"],
    ) -> list[Answer]:
        """Answers questions with the best spans of passages that were retrieved.

        Args:
          questions: texts.
          rows: their rows [B, Q].
          found: passage ids, best first.
          scores: relevance scores of the passages.

        Returns:
          Answers; without a reader for questions, their text is empty and they have passages only.
        """
        if self.question_embedder == "embedder":
            return [
                self._passages_only(question, found[i], scores[i])
                for i, question in enumerate(questions)
            ]
        joint = joint_rows(rows, self.store, found, self.config.lengths.joint)
        spans = self.networks.span_scores(joint, scores)
        body_starts = rows.mask.sum(-1)
        return [
            self._answer(question, found[i], scores[i], spans[i], int(body_starts[i]))
            for i, question in enumerate(questions)
        ]

    def _answer(
        self,
        question: str,
        found: np.ndarray,
        scores: np.ndarray,
        spans: np.ndarray,
        body_start: int,
    ) -> Answer:
        """Turns the scores of spans [T, J, W] into an answer text and evidence."""
        p_z = _softmax(scores)
        p_all = _softmax(spans.reshape(-1)).reshape(spans.shape)
        best, start, width = np.unravel_index(int(p_all.argmax()), spans.shape)
        pieces = (int(start) - body_start, int(start + width) - body_start)
        first, last = self._characters(int(found[best]), pieces)
        answer = self.store.body(int(found[best]))[first:last]
        evidence, probability = [], 0.0
        for row, passage in enumerate(found.tolist()):
            same = self._spans_with_text(passage, answer, spans.shape[1:], body_start)
            within = _softmax(spans[row].reshape(-1)).reshape(spans.shape[1:])
            probability += float(p_all[row][same].sum())
            evidence.append(
                Evidence(
                    id=passage,
                    title=self.store.title(passage),
                    text=self.store.body(passage),
                    p_z=float(p_z[row]),
                    p_answer=float(within[same].sum()),
                    span=self._best_span(passage, np.where(same, within, 0.0), body_start),
                    document_id=self.store.document_id(passage),
                )
            )
        return Answer(question, answer, probability, self.index.step, evidence)

    def _passages_only(self, question: str, found: np.ndarray, scores: np.ndarray) -> Answer:
        """An answer of a run that finds passages and has no reader for questions."""
        of, pairs = self.store, zip(found.tolist(), _softmax(scores).tolist(), strict=True)
        evidence = [
            Evidence(i, of.title(i), of.body(i), p_z, 0.0, None, of.document_id(i))
            for i, p_z in pairs
        ]
        return Answer(question, "", 0.0, self.index.step, evidence)

    def _spans_with_text(
        self, passage: int, answer: str, shape: tuple[int, ...], body_start: int
    ) -> np.ndarray:
        """Mask [J, W] of the spans of a passage whose text is the answer, ignoring case."""
        body, offsets = self.store.body(passage), self.store.body_offsets(passage)
        same = np.zeros(shape, bool)
        ends = {int(stop): piece for piece, stop in enumerate(offsets[:, 1])}
        begins = {int(start): piece for piece, start in enumerate(offsets[:, 0])}
        wanted, text = answer.casefold(), body.casefold()
        at = text.find(wanted) if len(text) == len(body) else body.find(answer)
        while at >= 0:
            start, stop = begins.get(at), ends.get(at + len(answer))
            if start is not None and stop is not None and stop - start < shape[1]:
                row = start + body_start
                if row < shape[0]:
                    same[row, stop - start] = True
            at = text.find(wanted, at + 1) if len(text) == len(body) else body.find(answer, at + 1)
        return same

    def _best_span(
        self, passage: int, within: np.ndarray, body_start: int
    ) -> tuple[int, int] | None:
        """Characters of the most probable span; None if all probabilities are 0."""
        if not within.any():
            return None
        start, width = np.unravel_index(int(within.argmax()), within.shape)
        return self._characters(passage, (int(start) - body_start, int(start + width) - body_start))

    def _characters(self, passage: int, pieces: tuple[int, int]) -> tuple[int, int]:
        """Start and stop, in characters of the body, of word pieces first .. last (inclusive)."""
        offsets = self.store.body_offsets(passage)
        return int(offsets[pieces[0], 0]), int(offsets[pieces[1], 1])


def _check_question(question: str) -> None:
    if not question.strip():
        raise InputError("the question is empty", expected="a question", found=repr(question))
    if len(question) > _MAX_CHARACTERS:
        raise InputError(
            "the question is too long",
            expected=f"at most {_MAX_CHARACTERS} characters",
            found=len(question),
        )


def _softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max())
    return shifted / shifted.sum()
