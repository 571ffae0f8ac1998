"""A finished run in Python: `run = realm_jax.open("runs/demo")`, then ask, retrieve, embed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.rows import query_rows
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answer, Answerer, relevance
from realm_jax.inference.fill_mask import MASK, Filling, MaskFiller
from realm_jax.inference.padded_batches import padded_batches
from realm_jax.inference.passage_writer import PassageWriter
from realm_jax.retrieval.retriever import search


@dataclass(frozen=True)
class Hit:
    """A passage that was retrieved; `score` is the relevance score, an inner product."""

    id: int
    score: float
    title: str
    text: str


class Run:
    """The export of a finished run with its index and corpus, opened once and used often.

    Names are those of sentence-transformers where the thing is the same. There is no `encode`:
    queries and passages are embedded differently, so one of the two would be quietly wrong.

    Attributes:
      similarity_fn_name: how vectors are compared.
    """

    similarity_fn_name = "dot"

    def __init__(self, answerer: Answerer):
        assert isinstance(answerer.index, PublishedIndex)
        self._answerer, self._index = answerer, answerer.index

    @classmethod
    def open(cls, workdir: str) -> "Run":
        """See `Answerer.open`."""
        return cls(Answerer.open(workdir))

    def __repr__(self) -> str:
        export = self._answerer.export
        what = "answers questions" if self.answers_questions else "fills blanks"
        return (
            f"<realm_jax.Run of step {export.step}, index of step {self._index.step}: "
            f"{len(self)} passages, {what}>"
        )

    def __len__(self) -> int:
        """Passages in the knowledge corpus, N."""
        return len(self._answerer.store)

    @property
    def config(self) -> ConfigDict:
        """Of the run, locked."""
        return self._answerer.config

    @property
    def answers_questions(self) -> bool:
        """Whether the run was fine-tuned; if not, it only fills blanks."""
        return self._answerer.networks.has("question_embedder")

    def passage(self, i: int) -> tuple[str, str]:
        """Title and text of passage `i`, 0 to N - 1."""
        store = self._answerer.store
        if not 0 <= i < len(store):
            raise InputError("no such passage", expected=f"0 to {len(store) - 1}", found=i)
        return store.title(i), store.body(i)

    def ask(self, question: str, k: int | None = None) -> Answer:
        """The best answer among the spans of the `k` best passages, with its evidence.

        Args:
          question: as people type it.
          k: passages to read; None is as many as in fine-tuning.

        Raises:
          InputError: an empty question, one too long, one with a blank (that is for `fill`), or a
            run that was never fine-tuned.
        """
        _require_text(question, "question")
        return self.ask_all([question], k)[0]

    def ask_all(self, questions: Sequence[str], k: int | None = None) -> list[Answer]:
        """`ask` for many questions, 64 at a time."""
        questions = _texts(questions, "questions")
        for question in questions:
            if MASK in question:
                raise InputError("a blank is filled, not asked", where=question, fix="run.fill(…)")
            self._answerer.check_whole(question)
        answers: list[Answer] = []
        for some, count in padded_batches(questions):
            answers += self._answerer.ask_all(some, k)[:count]
        return answers

    def fill(self, text: str, answer: str | None = None) -> Filling:
        """What goes into the one `[MASK]` of a text, or how likely `answer` is there.

        Raises:
          InputError: no string, or see `MaskFiller.fill`.
        """
        _require_text(text, "text")
        _require_text("" if answer is None else answer, "answer")
        return self._filler.fill(text, answer)

    def retrieve(self, texts: str | Sequence[str], k: int = 5) -> list[Hit] | list[list[Hit]]:
        """The `k` best passages for a text, best first; for several texts a list for each.

        Raises:
          InputError: see `encode_query`; or no positive `k`.
        """
        if k < 1:
            raise InputError("nothing to retrieve", where="k", expected="at least 1", found=k)
        vectors = np.atleast_2d(self.encode_query(texts))
        if not len(vectors):
            return []
        found = search(self._index, vectors, k)
        scores, store = relevance(self._index, vectors, found), self._answerer.store
        lists = [
            [
                Hit(i, score, store.title(i), store.body(i))
                for i, score in zip(ids, of_ids, strict=True)
            ]
            for ids, of_ids in zip(found.tolist(), scores.tolist(), strict=True)
        ]
        return lists[0] if isinstance(texts, str) else lists

    def encode_query(self, texts: str | Sequence[str]) -> Float32[np.ndarray, "*B E"]:
        """Vectors that are searched with: [E] for a text, [B, E] for several.

        A text with a `[MASK]` is a masked sentence, for the pre-trained embedder; any other is a
        question, for the fine-tuned one, if the run has one. Lengths of vectors mean something:
        they are not normalised.

        Raises:
          InputError: a text that is no string, empty or longer than `lengths.query`.
        """
        many = _texts(texts, "texts")
        tuned = [self.answers_questions and MASK not in text for text in many]
        vectors = self._nothing(len(many))
        for embedder, wanted in (("question_embedder", True), ("embedder", False)):
            places = [i for i, one in enumerate(tuned) if one == wanted]
            vectors[places] = self._encoded(embedder, [many[i] for i in places])
        return vectors[0] if isinstance(texts, str) else vectors

    embed = encode_query

    def encode_document(
        self, texts: str | Sequence[str], titles: str | Sequence[str] = ""
    ) -> Float32[np.ndarray, "*B E"]:
        """Vectors of texts as passages, comparable with those in the index: [E] or [B, E].

        Args:
          texts: bodies of passages.
          titles: one for each text, or one for all.

        Raises:
          InputError: a text that is no string, empty or longer than `lengths.passage`.
        """
        bodies, heads = _texts(texts, "texts"), _texts(titles, "titles")
        heads = heads * len(bodies) if isinstance(titles, str) else heads
        if len(heads) != len(bodies):
            raise InputError(
                "titles and texts do not pair", expected=f"{len(bodies)} titles", found=len(heads)
            )
        passages = [self._writer.pieces(*both) for both in zip(heads, bodies, strict=True)]
        vectors = self._joined(self._writer.vectors, passages)
        return vectors[0] if isinstance(texts, str) else vectors

    def similarity(
        self, queries: Float[np.ndarray, "*A E"], documents: Float[np.ndarray, "*B E"]
    ) -> Float[np.ndarray, "A B"]:
        """Relevance scores f(x, z) of every query vector with every passage vector."""
        return np.atleast_2d(queries) @ np.atleast_2d(documents).T

    def get_sentence_embedding_dimension(self) -> int:
        """E."""
        return self.config.model.embedding

    def _encoded(self, embedder: str, texts: list[str]) -> Float32[np.ndarray, "B E"]:
        words, length = self._answerer.store.vocabulary, self.config.lengths.query
        networks = self._answerer.networks
        return self._joined(
            lambda some: networks.vectors(embedder, query_rows(some, length, words)),
            [self._query(text) for text in texts],
        )

    def _query(self, text: str) -> np.ndarray:
        """Word pieces, `[MASK]` as the special one."""
        words, most = self._answerer.store.vocabulary, self.config.lengths.query - 2
        first, *others = [ids for ids, _ in words.pieces(text.split(MASK))]
        pieces = np.concatenate([first, *(np.append(words.mask, ids) for ids in others)])
        if not 1 <= len(pieces) <= most:
            raise InputError(
                "the text is too long to be a query" if len(pieces) else "the text is empty",
                where=repr(text[:60]),
                expected=f"1 to {most} word pieces (lengths.query)",
                found=len(pieces),
            )
        return pieces.astype(np.int32)

    def _joined(
        self, vectors_of: Callable[[list[Any]], np.ndarray], items: list[Any]
    ) -> Float32[np.ndarray, "B E"]:
        parts = [vectors_of(some)[:count] for some, count in padded_batches(items)]
        return np.concatenate([self._nothing(0), *parts])

    def _nothing(self, count: int) -> Float32[np.ndarray, "B E"]:
        return np.zeros((count, self.get_sentence_embedding_dimension()), np.float32)

    @cached_property
    def _filler(self) -> MaskFiller:
        return MaskFiller(self._answerer)

    @cached_property
    def _writer(self) -> PassageWriter:
        return PassageWriter(self._index, self._answerer.store, self.config)


def _texts(given: Any, where: str) -> list[str]:
    """Several texts, or one alone, as a list.

    Raises:
      InputError: something among them is no string.
    """
    several = isinstance(given, Iterable) and not isinstance(given, str)
    many = list(given) if several else [given]
    for text in many:
        _require_text(text, where)
    return many


def _require_text(given: object, where: str) -> None:
    if not isinstance(given, str):
        raise InputError(
            "not a text",
            where=where,
            expected="a string",
            found=f"{type(given).__name__} {given!r}"[:60],
        )
