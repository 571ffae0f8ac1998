"""`realm corpus inspect`: statistics of a corpus."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Int32, Integer

from realm_jax.corpus.dedup import text_digests
from realm_jax.corpus.store import PassageStore

_EDGES = (0, 32, 64, 96, 128, 160, 192, 224, 256, 289, 385, 513)
_PAIRS = 100_000  # random (sentence, passage) pairs to estimate the lengths of joint rows


def inspect(store: PassageStore, lengths: Mapping[str, int], *, seed: int = 0) -> dict[str, Any]:
    """Computes statistics of a corpus; reads all of its text once.

    Args:
      store: the passages.
      lengths: row lengths in word pieces for which padding is estimated: `query`, `passage` and
        `joint`.
      seed: seed of the random sample passage.

    Returns:
      A dict with these keys.
      `passages`, `documents`, `pieces`, `sentences`, `skipped`, `documents_with_id`,
      `repeated_ids`, `corpus_hash`: see the manifest. If documents were added or removed since the
      build: only `passages`, `sentences`, `corpus_hash`, `generation` and `segments`.
      `lengths`: histogram of the pieces of `[CLS] title [SEP] body [SEP]`, "from-to" -> passages.
      `oversize`: passages longer than `lengths["passage"]`, which are truncated when embedded.
      `padding`: fraction of padding in rows of passages, of sentences as queries, and of random
      (sentence, passage) pairs as joint rows.
      `duplicates`: passages whose title and body equal those of an earlier passage.
      `longest_titles`: the ten longest titles, in word pieces.
      `sample`: a random passage.
    """
    live = store.live_ids()
    sizes = store.lengths()[live]
    row = int(live[np.random.default_rng(seed).integers(len(live))])
    return {
        **store.summary(),
        "sentences": len(store.sentence_lengths()),
        "lengths": _histogram(sizes),
        "oversize": int((sizes > lengths["passage"]).sum()),
        "padding": _padding(store, sizes, lengths),
        "duplicates": len(live) - len(np.unique(text_digests(store)[live])),
        "longest_titles": _longest_titles(store),
        "sample": {
            "passage": row,
            "document_id": store.document_id(row),
            "title": store.title(row),
            "body": store.body(row),
        },
    }


def _histogram(sizes: Integer[np.ndarray, "N"]) -> dict[str, int]:
    counts, _ = np.histogram(sizes, [*_EDGES, np.iinfo(np.int32).max])
    names = [f"{a}-{b - 1}" for a, b in pairwise(_EDGES)] + [f"{_EDGES[-1]}-"]
    return dict(zip(names, counts.tolist(), strict=True))


def _padding(
    store: PassageStore, sizes: Int32[np.ndarray, "L"], lengths: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    starts, stops = store.body_bounds(store.live_ids())
    queries = np.minimum(store.sentence_lengths() + 2, lengths["query"])
    rng = np.random.default_rng(0)
    joint = rng.choice(queries, _PAIRS) + rng.choice(stops - starts, _PAIRS) + 1
    rows = {"passage": sizes, "query": queries, "joint": joint}
    return {
        name: {
            "length": lengths[name],
            "share": 1 - float(np.minimum(of_rows, lengths[name]).mean()) / lengths[name],
        }
        for name, of_rows in rows.items()
    }


def _longest_titles(store: PassageStore) -> list[dict[str, Any]]:
    starts, stops = store.title_bounds(np.arange(len(store)))
    found: dict[str, int] = {}
    for i in np.argsort(starts - stops, kind="stable"):
        found.setdefault(store.title(int(i)), int(stops[i] - starts[i]))
        if len(found) == 10:
            break
    return [{"title": title, "pieces": pieces} for title, pieces in found.items()]
