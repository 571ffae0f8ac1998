"""Recall@k of masked sentences with any embedder: untrained, after ICT, after REALM."""

import numpy as np
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.rows import Rows
from realm_jax.metrics import recall_at
from realm_jax.models.modules import Parameters
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.fusion import Ranked
from realm_jax.retrieval.retriever import search_with_scores


class _LocalIndex:
    """An exact index in memory, with the interface of a published one."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray, params: Parameters):
        self.step, self.searcher, self.query_params = 0, ExactSearcher(vectors), params
        self.rows = rows


class EmbeddedCorpus:
    """The vectors of a whole knowledge corpus, for exact search.

    Args:
      config: the run's config.
      store: the knowledge corpus.
      embedder: params of the passage embedder.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, embedder: Parameters):
        self._encoder, ids = Encoder(config, store.vocabulary.size), store.live_ids()
        self._embedder, self._rows = embedder, EmbedderRows(config, store.vocabulary)
        vectors = self._encoder.embed_passages(self._encoder.place(embedder), store, ids)
        self._index = _LocalIndex(vectors, ids, embedder)

    def ranking(self, queries: Rows, k: int, embedder: Parameters | None = None) -> Ranked:
        """Ids and scores [B, K] of the k best passages, best first.

        Args:
          queries: rows [B, Q].
          k: cut to the number of passages.
          embedder: of the queries; None: that of the passages.
        """
        params = self._encoder.place(self._embedder if embedder is None else embedder)
        vectors = self._encoder.embed_queries(params, self._rows.queries(queries))
        return search_with_scores(self._index, vectors, k)

    def hits(
        self, queries: Rows, k: int, embedder: Parameters | None = None
    ) -> Int64[np.ndarray, "B K"]:
        """The ids of `ranking`."""
        return self.ranking(queries, k, embedder)[0]

    def masked_recall(self, text: MaskedText, k: int) -> float:
        """Recall@k of masked sentences, over those with a known evidence passage."""
        found = self.hits(text.queries, k)
        known = text.evidence >= 0
        return float(recall_at(found[known], text.evidence[known], k).mean())
