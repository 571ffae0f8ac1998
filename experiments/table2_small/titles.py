"""What names an article: a rare piece of its title, in a sentence as in a question."""

from collections import defaultdict

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
        rare = passages <= max(1, RARE * len(store))
        self._titled: dict[int, set[int]] = defaultdict(set)
        for row in range(len(store)):
            title = store.title_ids(row)
            for piece in title[rare[title]].tolist():
                self._titled[piece].add(row)

    def named(self, text: Int32[np.ndarray, "n"]) -> set[int]:
        """The passages of whose title these pieces hold a rare one."""
        return set().union(*(self._titled.get(piece, set()) for piece in set(text.tolist())))
