"""Finds passages for texts: by vectors, by words (BM25), or by both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Int64

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.errors import InputError
from realm_jax.inference.edits import EditedBm25, EditedIndex
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
        index: PublishedIndex | EditedIndex,
        bm25: Callable[[], Bm25 | EditedBm25],
        texts: Sequence[str],
        embed: Embed,
        k: int,
    ) -> Ranked:
        """Ids and scores [B, K] of the k best passages of each text, best first.

        Args:
          index: of passage vectors.
          bm25: opens the word index of the same passages; called only if it is used.
          texts: queries.
          embed: returns the vectors of these queries; called only if they are used.
          k: cut to the number of passages.

        Returns:
          Scores are inner products, BM25 scores or fused scores. A passage that shares no word with
          the text has BM25 score 0; such passages come last, in the order of ids.
        """
        k = min(k, index.searcher.size)
        if self.retriever == "bm25":
            return bm25().search(texts, k)
        if self.retriever == "dense":
            return _by_vectors(index, embed(), k)
        ids, scores = bm25().search(texts, max(k, DEPTH))
        by_words = np.where(scores > 0, ids, NO_PASSAGE), scores
        return self.fusion(_by_vectors(index, embed(), max(k, DEPTH)), by_words, k)


def _by_vectors(
    index: PublishedIndex | EditedIndex, vectors: Float32[np.ndarray, "B E"], k: int
) -> Ranked:
    found = search(index, vectors, k)
    return found, relevance(index, vectors, found)


def relevance(
    index: PublishedIndex | EditedIndex,
    vectors: Float32[np.ndarray, "B E"],
    found: Int64[np.ndarray, "B K"],
) -> Float32[np.ndarray, "B K"]:
    """Exact relevance scores of passages; those of an approximate searcher are rounded."""
    return np.einsum("be,bke->bk", vectors, index.vectors_of(found).astype(np.float32))
