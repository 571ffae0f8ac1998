"""Fingerprints of the passages of a corpus, by which two versions of it are compared."""

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

from realm_jax.corpus.store import PassageStore

Fingerprints = UInt64[np.ndarray, "_ 2"]


@dataclass(frozen=True)
class CorpusDifference:
    """How many passages differ between two versions of a corpus.

    Attributes:
      added: passages that only the new one has.
      removed: passages that only the old one has.
      changed: passages with a title of both, and a text of only one.
    """

    added: int
    removed: int
    changed: int

    def __str__(self) -> str:
        counts = f"{self.added:,} added, {self.removed:,} removed, {self.changed:,} changed"
        same = not (self.added or self.removed or self.changed)
        return f"{counts}; the same texts in another order or split" if same else counts


def fingerprints(store: PassageStore) -> Fingerprints:
    """Hashes of the title, and of title and body, of each passage; cached for one corpus.

    Passages that were removed are left out.
    """
    return _fingerprints(store.path, store.generation, store.corpus_hash)


@functools.lru_cache(maxsize=1)
def _fingerprints(path: Path, generation: int, corpus_hash: str) -> Fingerprints:
    store = PassageStore.open(path, generation)
    ids = store.live_ids()
    result = np.empty((len(ids), 2), np.uint64)
    for row, i in enumerate(map(int, ids)):
        title, body = store.title(i), store.body(i)
        result[row] = _hash(title), _hash(f"{title}\0{body}")
    result.flags.writeable = False
    return result


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def difference(old: Fingerprints, new: Fingerprints) -> CorpusDifference:
    """Compares two corpora as multisets of passages; their order does not matter."""
    both = np.concatenate([old, new])
    sign = np.repeat([-1, 1], [len(old), len(new)])
    _, first, passage = np.unique(both[:, 1], return_index=True, return_inverse=True)
    more = np.bincount(passage, sign, len(first))  # copies in `new` minus copies in `old`
    _, title = np.unique(both[first, 0], return_inverse=True)
    added, removed = (np.bincount(title, np.maximum(one, 0)) for one in (more, -more))
    changed = np.minimum(added, removed)
    return CorpusDifference(
        *(int(counts.sum()) for counts in (added - changed, removed - changed, changed))
    )
