"""What names an article: a rare piece of its title, in a sentence as in a question."""

import numpy as np
from jaxtyping import Int32

from realm_jax.corpus.store import PassageStore

RARE = 0.01  # most passages that a rare piece is in, as a share of them


class Titles:
    """The titles of a store's passages, by their rare pieces."""

    def __init__(self, store: PassageStore):
        passages = np.zeros(store.vocabulary.size, np.int64)
        for row in range(len(store)):
            passages[np.unique(np.append(store.title_ids(row), store.body_ids(row)))] += 1
        self._store, self._rare = store, passages <= max(1, RARE * len(store))

    def names(self, text: Int32[np.ndarray, "n"], row: int) -> bool:
        """Whether these pieces hold a rare one of the passage's title."""
        title = self._store.title_ids(row)
        return bool(np.isin(title[self._rare[title]], text).any())
