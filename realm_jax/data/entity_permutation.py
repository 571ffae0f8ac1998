"""Rows whose rare word pieces change places, so that a reader must read (after entity
substitution in QA).

A small corpus is quicker learnt by heart than read. Under one permutation of the rare pieces,
query, passage and target stay consistent with each other, and what the model may remember is of no
use. Names become other names; the words that say how they belong together stay.
"""

import numpy as np
from jaxtyping import Bool, Int

from realm_jax.corpus.store import PassageStore

_COMMON = 5e-4  # share of all word pieces above which a piece keeps its place
_SAMPLE = 4_000_000  # pieces of the corpus that are counted


class RarePieces:
    """The pieces of a corpus that are not common, and permutations of them.

    Args:
      store: the knowledge corpus; its special pieces are never rare.
    """

    def __init__(self, store: PassageStore):
        words = store.vocabulary
        sample = store.flat[:_SAMPLE]
        rare = np.bincount(sample, minlength=words.size) <= _COMMON * len(sample)
        rare[list(words.special)] = False
        self.rare = np.flatnonzero(rare).astype(np.int32)
        self._size = words.size

    def permutation(self, rng: np.random.Generator) -> Int[np.ndarray, "V"]:
        """Each piece's place holder: a common piece's is itself, a rare one's another rare one."""
        table = np.arange(self._size, dtype=np.int32)
        table[self.rare] = rng.permutation(self.rare)
        return table


def permute_rows(
    pieces: Int[np.ndarray, "B L"], table: Int[np.ndarray, "V"], chosen: Bool[np.ndarray, "B"]
) -> Int[np.ndarray, "B L"]:
    """The pieces of the chosen rows looked up in `table`; the others as they are."""
    return np.where(chosen[:, None], table[pieces], pieces)
