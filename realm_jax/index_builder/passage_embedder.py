"""Vectors of the passages of a corpus, with the embedder of a snapshot."""

import numpy as np
from jaxtyping import Bool, Float32, Int64
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.artifacts.snapshots import Snapshot
from realm_jax.corpus.store import PassageStore
from realm_jax.retrieval.encoder import Encoder


class PassageEmbedder:
    """Embeds passages on all devices of this process.

    Args:
      config: of the snapshot.
      store: the knowledge corpus.
      snapshot: its embedder is used.
      known: an index of the same snapshot, whose vectors are taken where it has one.

    Attributes:
      ids: passage id of each index row: the passages that exist.
    """

    def __init__(
        self,
        config: ConfigDict,
        store: PassageStore,
        snapshot: Snapshot,
        known: PublishedIndex | None = None,
    ):
        self.ids: Int64[np.ndarray, N] = store.live_ids()
        self._store, self._snapshot, self._known = store, snapshot, known
        self._encoder = Encoder(config, store.vocabulary.size)
        self._params = self._encoder.place(snapshot.params["embedder"])

    def embed(self, ids: Int64[np.ndarray, "B"]) -> Float32[np.ndarray, "B E"]:
        """Vectors of passages."""
        has_vector = self._has_vector(ids)
        out = np.empty((len(ids), self._encoder.dims), np.float32)
        if self._known is not None:
            out[has_vector] = self._known.vectors_of(ids[has_vector])
        if not has_vector.all():
            new = ids[~has_vector]
            out[~has_vector] = self._encoder.embed_passages(self._params, self._store, new)
        return out

    def _has_vector(self, ids: Int64[np.ndarray, "B"]) -> Bool[np.ndarray, "B"]:
        if self._known is None:
            return np.zeros(len(ids), bool)
        row_of = self._known.row_of
        inside = ids < len(row_of)
        return inside & (row_of[np.where(inside, ids, 0)] >= 0)

    def probes(self) -> Float32[np.ndarray, "B E"]:
        """Vectors of the probe queries of the snapshot; raises as `Snapshot.require_probes`."""
        return self._encoder.embed_queries(self._params, self._snapshot.require_probes())
