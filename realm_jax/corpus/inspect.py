"""What is in a passage store, in figures: `realm corpus inspect`."""

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np

from realm_jax.corpus.split import PASSAGE_PIECES
from realm_jax.corpus.store import PassageStore

_EDGES = (0, 32, 64, 96, 128, 160, 192, 224, 256, 289, 385, 513)


def inspect(
    store: PassageStore, *, seed: int = 0, passage_pieces: int = PASSAGE_PIECES
) -> dict[str, Any]:
    """Figures of a store; reads all of its text once.

    Returns:
      `passages`, `documents`, `pieces`, `skipped`, `corpus_hash`; `lengths` (how many passages
      have how many pieces of `[CLS] title [SEP] body [SEP]`, as "from-to": count); `oversize`
      (passages longer than `passage_pieces`, cut when embedded); `padding` (share of
      `passage_pieces`-long rows that is padding); `duplicates` (passages whose title and body an
      earlier one has, byte for byte); `longest_titles` (ten, in pieces kept); `sample` (one
      passage, drawn by `seed`).
    """
    lengths = store.lengths()
    row = int(np.random.default_rng(seed).integers(len(store)))
    return {
        **{k: store.manifest[k] for k in ("passages", "documents", "pieces", "skipped")},
        "corpus_hash": store.corpus_hash,
        "lengths": _histogram(lengths),
        "oversize": int((lengths > passage_pieces).sum()),
        "padding": 1 - float(np.minimum(lengths, passage_pieces).mean()) / passage_pieces,
        "duplicates": _duplicates(store),
        "longest_titles": _longest_titles(store),
        "sample": {"passage": row, "title": store.title(row), "body": store.body(row)},
    }


def _histogram(lengths: np.ndarray) -> dict[str, int]:
    counts, _ = np.histogram(lengths, [*_EDGES, np.iinfo(np.int32).max])
    names = [f"{a}-{b - 1}" for a, b in pairwise(_EDGES)] + [f"{_EDGES[-1]}-"]
    return dict(zip(names, counts.tolist(), strict=True))


def _duplicates(store: PassageStore) -> int:
    seen = np.empty(len(store), np.uint64)
    for i in range(len(store)):
        content = f"{store.title(i)}\0{store.body(i)}".encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        seen[i] = int.from_bytes(digest, "little")
    return len(store) - len(np.unique(seen))


def _longest_titles(store: PassageStore) -> list[dict[str, Any]]:
    starts, stops = store.title_bounds(np.arange(len(store)))
    found: dict[str, int] = {}
    for i in np.argsort(starts - stops, kind="stable"):
        found.setdefault(store.title(int(i)), int(stops[i] - starts[i]))
        if len(found) == 10:
            break
    return [{"title": title, "pieces": pieces} for title, pieces in found.items()]
