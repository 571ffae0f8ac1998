"""Finds articles by the rare word pieces of their titles, in sentences and in questions."""

from collections import defaultdict

import numpy as np
from jaxtyping import Int32

from realm_jax.corpus.store import PassageStore

RARE = 0.01  # a piece is rare if at most this share of the passages contains it


class Titles:
    """Index from rare word pieces to the passages with them in their title, and from whole titles.

    Of passages with one title, only the first is found by its whole title. A whole title counts if
    it has a rare piece; a remark in parentheses is not part of it, as in "Mercury (planet)".
    """

    def __init__(self, store: PassageStore):
        self._continues = store.vocabulary.continues
        passages = np.zeros(store.vocabulary.size, np.int64)
        for row in range(len(store)):
            passages[np.unique(np.append(store.title_ids(row), store.body_ids(row)))] += 1
        rare = passages <= max(1, RARE * len(store))
        self._titled: dict[int, set[int]] = defaultdict(set)
        self._whole: dict[tuple[int, ...], int] = {}
        self._lengths: dict[int, set[int]] = defaultdict(set)  # of whole titles, by first piece
        remark = int(store.vocabulary.pieces(["("])[0][0][0])
        for row in range(len(store)):
            title = store.title_ids(row)
            for piece in title[rare[title]].tolist():
                self._titled[piece].add(row)
            named = title.tolist()
            named = named[: named.index(remark)] if remark in named[1:] else named
            if rare[named].any():
                self._whole.setdefault(tuple(named), row)
                self._lengths[named[0]].add(len(named))

    def named(self, text: Int32[np.ndarray, "n"]) -> set[int]:
        """The passages whose title shares a rare piece with these pieces."""
        return set().union(*(self._titled.get(piece, set()) for piece in set(text.tolist())))

    def named_whole(self, text: Int32[np.ndarray, "n"]) -> set[int]:
        """The passages whose whole title occurs in these pieces, as whole words."""
        pieces, begins = text.tolist(), [*(~self._continues[text]).tolist(), True]
        return {
            self._whole[title]
            for start, first in enumerate(pieces)
            if begins[start]
            for length in self._lengths.get(first, ())
            if start + length <= len(pieces) and begins[start + length]
            if (title := tuple(pieces[start : start + length])) in self._whole
        }
