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
      known: an index of the same snapshot, whose vectors are taken for the passages that have not
        changed since.

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
        self._has_vector = _unchanged(known, store)
        self._encoder = Encoder(config, store.vocabulary.size)
        self._params = self._encoder.place(snapshot.params["embedder"])

    def embed(self, ids: Int64[np.ndarray, "B"]) -> Float32[np.ndarray, "B E"]:
        """Vectors of passages."""
        has_vector = self._has_vector[ids]
        out = np.empty((len(ids), self._encoder.dims), np.float32)
        if self._known is not None:
            out[has_vector] = self._known.vectors_of(ids[has_vector])
        if not has_vector.all():
            new = ids[~has_vector]
            out[~has_vector] = self._encoder.embed_passages(self._params, self._store, new)
        return out

    def probes(self) -> Float32[np.ndarray, "B E"]:
        """Vectors of the probe queries of the snapshot; raises as `Snapshot.require_probes`."""
        return self._encoder.embed_queries(self._params, self._snapshot.require_probes())


def _unchanged(known: PublishedIndex | None, store: PassageStore) -> Bool[np.ndarray, "N"]:
    """By passage id: whether `known` has the vector of the text in this generation of the corpus.

    The corpus may have grown since `known` was opened.
    """
    found = np.zeros(len(store), bool)
    if known is None or known.manifest["corpus_hash"] not in store.lineage:
        return found
    row_of = known.row_of[: len(store)]
    found[: len(row_of)] = row_of >= 0
    found[store.changed_since(store.generation_of(known.manifest["corpus_hash"]))] = False
    return found
