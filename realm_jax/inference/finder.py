"""Finds passages for texts: by vectors, by words (BM25), or by both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Int64

from realm_jax.artifacts.current_index import CurrentIndex
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.retrieval.fusion import DEPTH, NO_PASSAGE, RETRIEVERS, Fusion, Ranked
from realm_jax.retrieval.retriever import search

Embed = Callable[[], Float32[np.ndarray, "B E"]]


@dataclass(frozen=True)
class Finder:
    """One way to find passages.

    Attributes:
      retriever: `dense`: inner product of vectors; `bm25`: words; `hybrid`: both, fused.
      fusion: of the two rankings, the dense one first.
    """

    retriever: str = "dense"
    fusion: Fusion = field(default_factory=Fusion)

    def __post_init__(self) -> None:
        if self.retriever not in RETRIEVERS:
            raise InputError(
                "no such retriever", expected=" or ".join(RETRIEVERS), found=self.retriever
            )

    def find(
        self,
        current: CurrentIndex,
        bm25: Callable[[], Bm25],
        texts: Sequence[str],
        embed: Embed,
        k: int,
    ) -> Ranked:
        """Ids and scores [B, K] of the k best passages of each text, best first.

        Args:
          current: the index of passage vectors, and the corpus.
          bm25: opens the word index of the corpus; called only if it is used. Passages that are not
            in the index of vectors are not found either.
          texts: queries.
          embed: returns the vectors of these queries; called only if they are used.
          k: cut to the number of passages.

        Returns:
          Scores are inner products, BM25 scores or fused scores. A passage that shares no word with
          the text has BM25 score 0; such passages come last, in the order of ids.
        """
        index = current.index
        k = min(k, index.searcher.size)
        if self.retriever == "bm25":
            return _by_words(bm25(), texts, k, current.missing)
        if self.retriever == "dense":
            return _by_vectors(index, embed(), k)
        ids, scores = _by_words(bm25(), texts, max(k, DEPTH), current.missing)
        by_words = np.where(scores > 0, ids, NO_PASSAGE), scores
        return self.fusion(_by_vectors(index, embed(), max(k, DEPTH)), by_words, k)


class WordIndex:
    """The BM25 index of the last version of a corpus that was asked for."""

    def __init__(self) -> None:
        self._bm25: Bm25 | None = None
        self._corpus_hash = ""

    def of(self, store: PassageStore) -> Bm25:
        """The index of a corpus."""
        if self._bm25 is None or self._corpus_hash != store.corpus_hash:
            self._bm25 = Bm25.open(store) if self._bm25 is None else self._bm25.over(store)
            self._corpus_hash = store.corpus_hash
        return self._bm25


def _by_words(bm25: Bm25, texts: Sequence[str], k: int, left_out: Int64[np.ndarray, "M"]) -> Ranked:
    """The k best passages by words; those that are left out come last, with score -inf."""
    ids, scores = bm25.search(texts, k + len(left_out))
    if len(left_out):
        scores = np.where(np.isin(ids, left_out), np.float32(-np.inf), scores)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
    return ids, scores


def _by_vectors(index: PublishedIndex, vectors: Float32[np.ndarray, "B E"], k: int) -> Ranked:
    """The k best passages by vectors, in the order of their exact scores."""
    found = search(index, vectors, k)
    scores = relevance(index, vectors, found)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(found, order, 1), np.take_along_axis(scores, order, 1)


def relevance(
    index: PublishedIndex,
    vectors: Float32[np.ndarray, "B E"],
    found: Int64[np.ndarray, "B K"],
) -> Float32[np.ndarray, "B K"]:
    """Exact inner products of queries and passages; an approximate searcher rounds them."""
    return np.einsum("be,bke->bk", vectors, index.vectors_of(found).astype(np.float32))
