"""Spans by capitals and dates, without a trained tagger: enough to start pre-training."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.text.dates import date_spans
from realm_jax.text.names import name_spans


def annotate(store: PassageStore, path: str | Path | None = None) -> SpanStore:
    """Marks names and dates in every sentence; the store is its own knowledge corpus (X is Z).

    Args:
      store: the passages.
      path: folder of the spans, by default `spans/` inside the store.

    Raises:
      InputError: the folder holds spans already.
    """
    spans = (salient(store, i) for i in range(len(store)))
    return SpanStore.write(path, store, spans, own=np.arange(len(store)))


def salient(store: PassageStore, i: int) -> list[tuple[int, int]]:
    """Piece spans of passage `i`, in order, none overlapping, each inside one sentence."""
    body, offsets, bounds = store.body(i), store.body_offsets(i), store.sentences(i)
    found: list[tuple[int, int]] = []
    for first, stop in pairwise(bounds.tolist()):
        begin, end = int(offsets[first, 0]), int(offsets[stop - 1, 1])
        found += [(begin + a, begin + b) for a, b in salient_characters(body[begin:end])]
    return char_spans_to_pieces(offsets, found)


def salient_characters(sentence: str) -> list[tuple[int, int]]:
    """Character spans of dates, and of names that overlap none, in one sentence."""
    dates = date_spans(sentence)
    names = [(a, b) for a, b in name_spans(sentence) if not any(a < d and c < b for c, d in dates)]
    return sorted(dates + names)
