"""A finished run in Python: `run = realm_jax.open("runs/demo")`, then ask, retrieve or embed."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from ml_collections import ConfigDict

from realm_jax.artifacts.run_config import NO_PATHS
from realm_jax.data.rows import query_rows
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answer, Answerer
from realm_jax.inference.arguments import (
    AnyPath,
    count_of,
    paths_of,
    require_text,
    texts_of,
    whole_number,
)
from realm_jax.inference.fill_mask import MASK, Filling, MaskFiller, with_mask
from realm_jax.inference.padded_batches import padded_batches
from realm_jax.inference.passage_writer import PassageWriter
from realm_jax.retrieval.encoder import MAX_QUERIES
from realm_jax.retrieval.fusion import Fusion


@dataclass(frozen=True)
class Hit:
    """A retrieved passage.

    Attributes:
      id: of the passage.
      score: of the retriever: inner product (cosine of unit-length vectors), BM25 or fused score.
      title: its title.
      text: its body.
      document_id: id of its document as the source gives it (`_id`, `id`); "" if there is none.
    """

    id: int
    score: float
    title: str
    text: str
    document_id: str = ""


class Run:
    """The export of a finished run with its index and corpus.

    Methods that do the same as in sentence-transformers have the same names. There is no `encode`,
    because queries and passages have different row layouts.

    Attributes:
      similarity_fn_name: `dot`, inner product.
    """

    similarity_fn_name = "dot"

    def __init__(self, answerer: Answerer):
        self._answerer, self._index = answerer, answerer.index

    @classmethod
    def open(cls, workdir: AnyPath, paths: Mapping[str, AnyPath] = NO_PATHS) -> "Run":
        """See `realm_jax.open`."""
        return cls(Answerer.open(os.fspath(workdir), paths_of(paths)))

    def __repr__(self) -> str:
        export = self._answerer.export
        untuned = "finds passages" if self.answers_questions else "fills blanks"
        what = "answers questions" if self._tuned else untuned
        return (
            f"<realm_jax.Run of step {export.step}, index of step {self._index.step}: "
            f"{len(self)} passages, {what}>"
        )

    def __len__(self) -> int:
        """N, passages in the knowledge corpus."""
        return self._answerer.store.passages()

    @property
    def config(self) -> ConfigDict:
        """The config of the run, locked."""
        return self._answerer.config

    @property
    def answers_questions(self) -> bool:
        """See `Answerer.takes_questions`."""
        return self._answerer.takes_questions

    def passage(self, i: int) -> tuple[str, str]:
        """Title and body of passage `i`."""
        store, i = self._answerer.store, whole_number(i, "passage")
        if not store.is_live(np.array([i]))[0]:
            raise InputError("no such passage", expected=f"0 to {len(store) - 1}", found=i)
        return store.title(i), store.body(i)

    def ask(self, question: str, k: int | None = None, *, retriever: str = "dense") -> Answer:
        """Answers a question with the best span of the `k` best passages.

        Args:
          question: without `[MASK]`; for a sentence with `[MASK]` use `fill`.
          k: passages to read; None: `stages.qa.reader_passages`.
          retriever: see `retrieve`.

        Returns:
          The answer, its probability and the passages that were read.

        Raises:
          InputError: the question is empty, too long or has a `[MASK]`, `k` is not a number of at
            least 1, or the run was not fine-tuned.
        """
        require_text(question, "question")
        return self.ask_all([question], k, retriever=retriever)[0]

    def ask_all(
        self, questions: Sequence[str], k: int | None = None, *, retriever: str = "dense"
    ) -> list[Answer]:
        """Answers many questions in batches of up to 64; see `ask`."""
        questions = [with_mask(question) for question in texts_of(questions, "questions")]
        k = None if k is None else count_of(k, "k")
        for question in questions:
            if MASK in question:
                raise InputError(
                    f"a question must not contain {MASK}", where=question, fix="run.fill(…)"
                )
            self._answerer.check_fits(question)
        answers: list[Answer] = []
        answerer = self._answerer.by(retriever)
        for padded, count in padded_batches(questions):
            answers += answerer.ask_all(padded, k)[:count]
        return answers

    def fill(self, text: str, answer: str | None = None) -> Filling:
        """Fills the `[MASK]` of a text, or computes the probability of `answer` there.

        Raises:
          InputError: `text` or `answer` is not a string; or see `MaskFiller.fill`.
        """
        require_text(text, "text")
        require_text("" if answer is None else answer, "answer")
        return self._filler.fill(text, answer)

    def retrieve(
        self,
        texts: str | Sequence[str],
        k: int = 5,
        *,
        retriever: str = "dense",
        fusion: Fusion | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """Searches for the `k` best passages.

        Args:
          texts: one text or several; see `encode_query`.
          k: passages per text, at least 1.
          retriever: `dense` compares vectors, `bm25` words, `hybrid` fuses both rankings.
          fusion: of `hybrid`; None: the weighted sum of both scores.

        Returns:
          Hits for one text, best first; for several texts a list of such lists. Passages that have
          no word in common with a text have BM25 score 0 and come last.

        Raises:
          InputError: `k` is not a number of at least 1, there is no such retriever, or see
            `encode_query`.
        """
        many, store, k = texts_of(texts, "texts"), self._answerer.store, count_of(k, "k")
        answerer = self._answerer.by(retriever, fusion)
        if not many:
            return []
        words = [with_mask(text).replace(MASK, " ") for text in many]  # it is no word for BM25
        parts = [
            answerer.find(words[part], partial(self.encode_query, many[part]), k)
            for part in (slice(at, at + MAX_QUERIES) for at in range(0, len(many), MAX_QUERIES))
        ]
        found, scores = (np.concatenate(kind) for kind in zip(*parts, strict=True))
        lists = [
            [
                Hit(i, score, store.title(i), store.body(i), store.document_id(i))
                for i, score in zip(ids, of_ids, strict=True)
            ]
            for ids, of_ids in zip(found.tolist(), scores.tolist(), strict=True)
        ]
        return lists[0] if isinstance(texts, str) else lists

    def encode_query(self, texts: str | Sequence[str]) -> Float32[np.ndarray, "*B E"]:
        """Embeds queries.

        Texts with `[MASK]` are embedded with the pre-trained embedder, other texts with the
        fine-tuned one if the run has it. Vectors have unit length if `model.normalise`.

        Returns:
          [E] for one text, [B, E] for several.

        Raises:
          InputError: a text is not a string, is empty, or is longer than `lengths.query`.
        """
        many = [with_mask(text) for text in texts_of(texts, "texts")]
        tuned = [self._tuned and MASK not in text for text in many]
        vectors = self._zeros(len(many))
        for embedder, wanted in (("question_embedder", True), ("embedder", False)):
            members = [i for i, is_tuned in enumerate(tuned) if is_tuned == wanted]
            vectors[members] = self._encode_queries(embedder, [many[i] for i in members])
        return vectors[0] if isinstance(texts, str) else vectors

    @property
    def _tuned(self) -> bool:
        return self._answerer.networks.has("question_embedder")

    def embed(self, texts: str | Sequence[str], kind: str = "query") -> Float32[np.ndarray, "*B E"]:
        """Embeds queries or passages, with the prompt of their kind if the encoder has prompts.

        Args:
          texts: one text or several.
          kind: `query`: see `encode_query`. `passage`: see `encode_document`; without titles.

        Raises:
          InputError: another kind; or see the two methods.
        """
        if kind == "query":
            return self.encode_query(texts)
        if kind == "passage":
            return self.encode_document(texts)
        raise InputError("no such kind of text", expected="query or passage", found=repr(kind))

    def encode_document(
        self, texts: str | Sequence[str], titles: str | Sequence[str] = ""
    ) -> Float32[np.ndarray, "*B E"]:
        """Embeds passages with the parameters of the index.

        Args:
          texts: bodies of passages.
          titles: one per text, or one for all.

        Returns:
          [E] for one text, [B, E] for several.

        Raises:
          InputError: a text is not a string, is empty, or is longer than `lengths.passage`.
        """
        bodies, of_each = texts_of(texts, "texts"), texts_of(titles, "titles")
        of_each = of_each * len(bodies) if isinstance(titles, str) else of_each
        if len(of_each) != len(bodies):
            raise InputError(
                "titles and texts differ in number",
                expected=f"{len(bodies)} titles",
                found=len(of_each),
            )
        passages = [self._writer.pieces(*both) for both in zip(of_each, bodies, strict=True)]
        vectors = self._in_batches(self._writer.vectors, passages)
        return vectors[0] if isinstance(texts, str) else vectors

    def similarity(
        self, queries: Float[np.ndarray, "*A E"], documents: Float[np.ndarray, "*B E"]
    ) -> Float[np.ndarray, "A B"]:
        """Inner products of all pairs of query and passage vectors."""
        return np.atleast_2d(queries) @ np.atleast_2d(documents).T

    def get_sentence_embedding_dimension(self) -> int:
        """E, the dimension of the vectors."""
        return self.config.model.embedding

    def _encode_queries(self, embedder: str, texts: list[str]) -> Float32[np.ndarray, "B E"]:
        words, length = self._answerer.store.vocabulary, self.config.lengths.query
        networks = self._answerer.networks
        return self._in_batches(
            lambda padded: networks.query_vectors(embedder, query_rows(padded, length, words)),
            [self._query(text) for text in texts],
        )

    def _query(self, text: str) -> np.ndarray:
        """Word pieces; `[MASK]` becomes the special token."""
        words, longest = self._answerer.store.vocabulary, self.config.lengths.query - 2
        first, *others = [ids for ids, _ in words.pieces(text.split(MASK))]
        pieces = np.concatenate([first, *(np.append(words.mask, ids) for ids in others)])
        if not 1 <= len(pieces) <= longest:
            raise InputError(
                "the text is too long to be a query" if len(pieces) else "the text is empty",
                where=repr(text[:60]),
                expected=f"1 to {longest} word pieces (lengths.query)",
                found=len(pieces),
            )
        return pieces.astype(np.int32)

    def _in_batches(
        self, vectors_of: Callable[[list[Any]], np.ndarray], items: list[Any]
    ) -> Float32[np.ndarray, "B E"]:
        parts = [vectors_of(padded)[:count] for padded, count in padded_batches(items)]
        return np.concatenate([self._zeros(0), *parts])

    def _zeros(self, count: int) -> Float32[np.ndarray, "B E"]:
        return np.zeros((count, self.get_sentence_embedding_dimension()), np.float32)

    @cached_property
    def _filler(self) -> MaskFiller:
        return MaskFiller(self._answerer)

    @cached_property
    def _writer(self) -> PassageWriter:
        return PassageWriter(self._index, self._answerer.store.vocabulary, self.config)
