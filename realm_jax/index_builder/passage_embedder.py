"""Vectors of the passages of a corpus, with the embedder of a snapshot."""

import numpy as np
from jaxtyping import Float32, Int64
from ml_collections import ConfigDict

from realm_jax.artifacts.snapshots import Snapshot
from realm_jax.corpus.store import PassageStore
from realm_jax.retrieval.encoder import Encoder


class PassageEmbedder:
    """Embeds passages on all devices of this process.

    Args:
      config: of the snapshot.
      store: the knowledge corpus.
      snapshot: its embedder is used.

    Attributes:
      ids: passage id of each index row: the passages that exist.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, snapshot: Snapshot):
        self.ids: Int64[np.ndarray, N] = store.live_ids()
        self._store, self._snapshot = store, snapshot
        self._encoder = Encoder(config, store.vocabulary.size)
        self._params = self._encoder.place(snapshot.params["embedder"])

    def embed(self, ids: Int64[np.ndarray, "B"]) -> Float32[np.ndarray, "B E"]:
        """Vectors of passages."""
        return self._encoder.embed_passages(self._params, self._store, ids)

    def probes(self) -> Float32[np.ndarray, "B E"]:
        """Vectors of the probe queries of the snapshot; raises as `Snapshot.require_probes`."""
        return self._encoder.embed_queries(self._params, self._snapshot.require_probes())
