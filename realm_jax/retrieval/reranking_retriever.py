"""Hits of an index, ranked again by fresh passage vectors."""

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import Rows
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.retriever import NO_STEP, Index, Retriever, StepContext


class RerankingRetriever(Retriever):
    """Finds `retrieval.rerank` hits in the index and ranks them with the parameters of the step.

    Passages that the stale index misses stay missed; the hits are in the order of the fresh
    embedder. Atlas (Izacard et al., 2022, section 2.4) calls it re-ranking.

    Args:
      config: of the run.
      store: the knowledge corpus.
      mesh: the devices that hold the parameters of the step; None: all of this process.
    """

    prefetchable = False  # the order of the hits needs the parameters of the step

    def __init__(self, config: ConfigDict, store: PassageStore, mesh: Mesh | None = None):
        super().__init__(config)
        self._width, self._store = config.retrieval.rerank, store
        self._encoder = Encoder(config, store.vocabulary.size, mesh)
        self._host = HostRetriever(config, store.vocabulary.size)

    def hits(
        self, index: Index, queries: Rows, k: int, step: StepContext = NO_STEP
    ) -> Int64[np.ndarray, "R K"]:
        """See `Retriever.hits`.

        Args:
          index: the index to search, with the query embedder published with it.
          queries: [R, Q].
          k: hits after the first `retrieval.rerank` stay in the order of the index.
          step: its params, on the devices, rank the hits; without them, the order of the index
            stands.
        """
        if step.params is None:
            return self._host.hits(index, queries, k)
        params = self._encoder.place(step.params)
        found = self._host.hits(index, queries, max(k, self._width))
        found, others = found[:, : self._width], found[:, self._width :]
        passages, positions = np.unique(found, return_inverse=True)
        vectors = self._encoder.embed_passages(params, self._store, passages)
        scores = np.einsum(
            "be,bhe->bh",
            self._encoder.embed_queries(params, queries),
            vectors[positions.reshape(found.shape)],
        )
        order = np.argsort(-scores, axis=1, kind="stable")
        return np.hstack([np.take_along_axis(found, order, axis=1), others])[:, :k]
