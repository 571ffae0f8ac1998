"""The salient spans of a corpus that few passages have, as other spans to hide.

Words in one passage only can be found in no other. Words in many passages ("total", "2021") are
found in passages that state nothing about the sentence.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import compress
from pathlib import Path

import numpy as np

from realm_jax.corpus.rare_terms import is_rare
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore

Pieces = tuple[int, ...]


def write_rare_spans(corpus: Path, out: Path) -> SpanStore:
    """Writes the spans whose word pieces are in few passages, but not in one only (`is_rare`).

    Args:
      corpus: passages with their salient spans.
      out: a new folder.

    Raises:
      InputError: the folder is not empty.
    """
    store = PassageStore.open(corpus)
    spans = SpanStore.open(None, store)
    wanted = {pieces for i in range(len(store)) for _, pieces in _of(spans, store, i)}
    counts = _passages_with(wanted, store)
    chosen = is_rare(np.array(list(counts.values())), len(store))
    rare = set(compress(counts, chosen))
    kept = (
        [span for span, pieces in _of(spans, store, i) if pieces in rare] for i in range(len(store))
    )
    return SpanStore.write(out, store, kept, source=spans.source, evidence=spans.evidence)


def _of(spans: SpanStore, store: PassageStore, i: int) -> list[tuple[tuple[int, int], Pieces]]:
    """The spans of passage `i`, each with its word pieces."""
    body = store.body_ids(i).tolist()
    return [((a, b), tuple(body[a:b])) for a, b in spans.of(i).tolist()]


def _passages_with(wanted: set[Pieces], store: PassageStore) -> Counter[Pieces]:
    """The number of passages whose body has each of the wanted runs of word pieces."""
    lengths = sorted({len(pieces) for pieces in wanted})

    def runs(i: int) -> Iterator[Pieces]:
        body = tuple(store.body_ids(i).tolist())
        for length in lengths:
            yield from (body[at : at + length] for at in range(len(body) - length + 1))

    counts: Counter[Pieces] = Counter()
    for i in range(len(store)):
        counts.update(wanted.intersection(runs(i)))
    return counts
