"""Marks salient spans by rules: capitalized names and dates, without a trained tagger."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from realm_jax.corpus.dedup import source_passages
from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.worker_pool import in_order
from realm_jax.text.dates import date_spans
from realm_jax.text.names import name_spans

_ROWS = 2048  # passages per task of a worker

Spans = list[tuple[int, int]]


def mark_spans(
    store: PassageStore,
    path: str | Path | None = None,
    *,
    knowledge: PassageStore | None = None,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> SpanStore:
    """Marks names and dates in every sentence and writes the span store.

    Args:
      store: the passages X.
      path: folder of the spans; by default `spans/` inside the corpus.
      knowledge: the knowledge corpus Z for training on X; X itself by default.
      workers: number of processes; does not change the spans.
      progress: called with the number of finished passages.

    Raises:
      InputError: the folder already holds spans.
    """
    knowledge = store if knowledge is None else knowledge
    parts = (range(a, min(a + _ROWS, len(store))) for a in range(0, len(store), _ROWS))

    def spans() -> Iterator[Spans]:
        done = 0
        for part in in_order(partial(_salient_rows, store), parts, workers):
            yield from part
            done += len(part)
            if progress is not None:
                progress(done)

    source = source_passages(store, knowledge)
    return SpanStore.write(path, store, spans(), source=source, knowledge=knowledge)


def _salient_rows(store: PassageStore, rows: range) -> list[Spans]:
    return [salient(store, i) for i in rows]


def salient(store: PassageStore, i: int) -> Spans:
    """Spans of passage `i` in body pieces: in order, not overlapping, each inside one sentence."""
    body, offsets, bounds = store.body(i), store.body_offsets(i), store.sentences(i)
    found: Spans = []
    for first, stop in pairwise(bounds.tolist()):
        begin, end = int(offsets[first, 0]), int(offsets[stop - 1, 1])
        found += [(begin + a, begin + b) for a, b in salient_characters(body[begin:end])]
    return char_spans_to_pieces(offsets, found)


def salient_characters(sentence: str) -> list[tuple[int, int]]:
    """Character spans in one sentence: dates, and names that do not overlap a date."""
    dates = date_spans(sentence)
    names = [(a, b) for a, b in name_spans(sentence) if not any(a < d and c < b for c, d in dates)]
    return sorted(dates + names)
