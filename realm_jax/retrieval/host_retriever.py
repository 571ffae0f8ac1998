"""Search from the host, with the query embedder that was published with the index."""

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from ml_collections import ConfigDict

from realm_jax.data.rows import Rows
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.retriever import NO_STEP, Index, Retriever, StepContext, search


class HostRetriever(Retriever):
    """Embeds queries with the parameters of the index and calls its searcher.

    The hits of a batch depend only on the seed, the step and the index, so batches can be prepared
    before the step that uses them.

    Args:
      config: of the run.
      vocabulary: V.
    """

    prefetchable = True

    def __init__(self, config: ConfigDict, vocabulary: int):
        super().__init__(config)
        self._encoder = Encoder(config, vocabulary)
        self._placed: tuple[int, Any] = (-1, None)

    def hits(
        self, index: Index, queries: Rows, k: int, step: StepContext = NO_STEP
    ) -> Int64[np.ndarray, "R K"]:
        """See `Retriever.hits`; `step` is not used."""
        return search(index, self.embed_queries(index, queries), k)

    def embed_queries(self, index: Index, queries: Rows) -> Float32[np.ndarray, "B E"]:
        """Query vectors with the parameters published with `index`."""
        placed = self._placed  # read once: another thread may search another index meanwhile
        if placed[0] != index.step:
            placed = self._placed = (index.step, self._encoder.place(index.query_params))
        return self._encoder.embed_queries(placed[1], queries)
