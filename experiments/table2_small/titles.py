"""Finds articles by the rare word pieces of their titles, in sentences and in questions."""

from collections import defaultdict

import numpy as np
from jaxtyping import Int32

from realm_jax.corpus.store import PassageStore

RARE = 0.01  # a piece is rare if at most this share of the passages contains it


class Titles:
    """Index from rare word pieces to the passages with them in their title."""

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
        """The passages whose title shares a rare piece with these pieces."""
        return set().union(*(self._titled.get(piece, set()) for piece in set(text.tolist())))
