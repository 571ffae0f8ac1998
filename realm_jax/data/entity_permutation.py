"""Permutes rare word pieces within a row, so that a reader must copy from the passage.

A reader can memorise a small corpus instead of reading the passage. One permutation of the rare
pieces is applied to query, passage and target, so they stay consistent, but memorised facts become
useless. Names become other names; common words stay. Entity substitution in QA (Longpre et al.,
2021) has the same purpose.
"""

import numpy as np
from jaxtyping import Bool, Int

from realm_jax.corpus.store import PassageStore

_COMMON = 5e-4  # pieces above this share of all tokens are never permuted
_SAMPLE = 4_000_000  # tokens of the corpus that are counted


class RarePieces:
    """The rare pieces of a corpus, and random permutations of them.

    Args:
      store: the knowledge corpus; special tokens are never rare.
    """

    def __init__(self, store: PassageStore):
        words = store.vocabulary
        sample = store.flat[:_SAMPLE]
        rare = np.bincount(sample, minlength=words.size) <= _COMMON * len(sample)
        rare[list(words.special)] = False
        self.rare = np.flatnonzero(rare).astype(np.int32)
        self._size = words.size

    def permutation(self, rng: np.random.Generator) -> Int[np.ndarray, "V"]:
        """A table from piece to piece that permutes the rare pieces and keeps all others."""
        table = np.arange(self._size, dtype=np.int32)
        table[self.rare] = rng.permutation(self.rare)
        return table


def permute_rows(
    pieces: Int[np.ndarray, "B L"], table: Int[np.ndarray, "V"], chosen: Bool[np.ndarray, "B"]
) -> Int[np.ndarray, "B L"]:
    """Replaces the tokens of the chosen rows by `table[token]`; other rows are unchanged."""
    return np.where(chosen[:, None], table[pieces], pieces)
