"""Hits of an index, ranked anew by vectors that are not stale."""

from typing import Any

import numpy as np
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import Rows
from realm_jax.retrieval.encoder import PassageEmbedder
from realm_jax.retrieval.retriever import Index, Retriever


class Reranker:
    """Finds `retrieval.rerank` hits in the index and embeds them with parameters of the step.

    What an old index does not find stays unfound; what it finds is in the order of today. Atlas
    (Izacard et al., 2022, section 2.4) calls it re-ranking.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, retriever: Retriever):
        self._width, self._retriever = config.retrieval.rerank, retriever
        self._embedder = PassageEmbedder(config, store, {})

    def hits(
        self, index: Index, queries: Rows, k: int, parameters: Any
    ) -> Int64[np.ndarray, "B K"]:
        """Passage ids of the k best among the hits, best first.

        Args:
          index: what is searched, with its own query embedder.
          queries: [B, Q].
          k: at most `retrieval.rerank`; cut to the size of the index.
          parameters: of the embedder that ranks, on the devices.
        """
        found = self._retriever.hits(index, queries, self._width)
        passages, places = np.unique(found, return_inverse=True)
        self._embedder.use(parameters)
        vectors = self._embedder.vectors(passages)[places.reshape(found.shape)]
        asked = self._retriever.vectors_by(parameters, queries)
        scores = np.einsum("be,bhe->bh", asked, vectors)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(found, order, axis=1)
