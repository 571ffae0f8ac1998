"""BM25 over a corpus of which some passages changed since its index was built."""

import numpy as np
from jaxtyping import Float32, Int64

from realm_jax.corpus.store import PassageStore
from realm_jax.retrieval.bm25 import Bm25, texts_of
from realm_jax.retrieval.bm25_words import Texts


class GrownBm25(Bm25):
    """The index of an earlier generation, and the passages that changed since in memory.

    Removed and replaced passages are not found. Written ones are scored with the document
    frequencies of the earlier generation, until enough changed for a new index.

    Args:
      base: the index of an earlier generation, or of this one if it has removed ids.
      store: the corpus.
      changed: ids that changed since that generation.
    """

    def __init__(self, base: Bm25, store: PassageStore, changed: Int64[np.ndarray, "C"]):
        self._base, self._ids = base, changed[store.is_live(changed)]
        self._hidden = np.isin(base.ids, changed)
        self._texts = Texts(texts_of(store, self._ids))
        self._end, self._size = len(store), store.passages()

    def __len__(self) -> int:
        """Passages that can be found."""
        return self._size

    def scores(self, query: str) -> Float32[np.ndarray, "N"]:
        """BM25 scores by passage id; -inf for passages that do not exist."""
        scores = np.full(self._end, -np.inf, np.float32)
        scores[self._base.ids] = np.where(self._hidden, -np.inf, self._base.scores(query))
        scores[self._ids] = self._base.scores_of(query, self._texts)
        return scores

    def over(self, store: PassageStore) -> Bm25:
        """See `Bm25.over`."""
        return self._base.over(store)
