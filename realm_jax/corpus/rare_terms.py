"""Rare terms: words in few passages, to mask in text with few names, dates and quantities.

Words are counted in hashed buckets, so the memory does not depend on the vocabulary of the corpus.
Two words in one bucket are counted together, so a rare word may be missed.
"""

import re
import zlib
from collections.abc import Iterator
from functools import partial

import numpy as np
from jaxtyping import Bool, Int64, Integer, UInt8

from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.worker_pool import in_order

_LEAST_PASSAGES = 2  # a word in one passage only cannot be found in another one
_MOST_SHARE = 0.01  # of all passages
_SMALL_CORPUS = 3  # passages that may hold a rare term, however few the corpus has
_BUCKETS = 1 << 24
_ROWS = 2048  # passages per task of a worker
_WORD = re.compile(r"(?<!\w)[^\W\d_]{4,40}(?!\w)")


class RareTerms:
    """Words of at least four letters that few passages of a corpus have; see `is_rare`.

    Args:
      bits: a bit per bucket, 1 if its words are rare.

    Attributes:
      bits: see above.
    """

    def __init__(self, bits: UInt8[np.ndarray, "_"]):
        self.bits = bits

    @classmethod
    def of(cls, store: PassageStore, workers: int = 1) -> "RareTerms":
        """Counts the passages of each word.

        Args:
          store: the passages.
          workers: number of processes; does not change the result.
        """
        counts = np.zeros(_BUCKETS, np.int32)
        parts = (range(a, min(a + _ROWS, len(store))) for a in range(0, len(store), _ROWS))
        for buckets in in_order(partial(_buckets_of, store), parts, workers):
            np.add.at(counts, buckets, 1)
        return cls(np.packbits(is_rare(counts, len(store))))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Character spans (start, stop) of the rare terms in `text`, in order."""
        return [match.span() for match in _WORD.finditer(text) if self._is_rare(match.group())]

    def _is_rare(self, word: str) -> bool:
        bucket = _bucket(word)
        return bool(self.bits[bucket >> 3] & (128 >> (bucket & 7)))


def is_rare(counts: Integer[np.ndarray, "_"], passages: int) -> Bool[np.ndarray, "_"]:
    """Whether what occurs in `counts` of `passages` passages is rare.

    It is in at least 2 of them, and in at most 1 %, or in at most 3 of a small corpus.
    """
    return (counts >= _LEAST_PASSAGES) & (counts <= max(_MOST_SHARE * passages, _SMALL_CORPUS))


def _bucket(word: str) -> int:
    return zlib.crc32(word.lower().encode()) % _BUCKETS


def _buckets_of(store: PassageStore, rows: range) -> Int64[np.ndarray, "_"]:
    """The buckets of the distinct words of each passage, one after another."""

    def buckets() -> Iterator[int]:
        for i in rows:
            yield from {_bucket(word) for word in _WORD.findall(store.body(i))}

    return np.fromiter(buckets(), np.int64)
