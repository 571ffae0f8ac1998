"""Marks salient spans by rules, without a trained tagger: what pre-training masks.

Names (by capitalisation), dates and quantities are always marked. If fewer than half of the
passages have one, as in technical or lower-cased text, rare terms are marked too.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from realm_jax.corpus.dedup import source_passages
from realm_jax.corpus.rare_terms import RareTerms
from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.worker_pool import in_order
from realm_jax.text.dates import date_spans
from realm_jax.text.names import name_spans
from realm_jax.text.quantities import quantity_spans

FEW = 0.5  # share of passages with a name, date or quantity below which rare terms are marked
_ROWS = 2048  # passages per task of a worker
_SAMPLE = 1_000  # passages from which the share is estimated, which are then marked twice

Spans = list[tuple[int, int]]


def mark_spans(
    store: PassageStore,
    path: str | Path | None = None,
    *,
    knowledge: PassageStore | None = None,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> SpanStore:
    """Marks every sentence and writes the span store; its manifest has the `kinds`.

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
    terms = RareTerms.of(store, workers) if has_few_spans(store) else None
    kinds: Counter[str] = Counter()

    def spans() -> Iterator[Spans]:
        done = 0
        for marked, counts in in_order(partial(_mark_rows, store, terms), parts, workers):
            kinds.update(counts)
            yield from marked
            done += len(marked)
            if progress is not None:
                progress(done)

    source = source_passages(store, knowledge)
    return SpanStore.write(path, store, spans(), source=source, knowledge=knowledge, kinds=kinds)


def has_few_spans(store: PassageStore) -> bool:
    """Whether fewer than half of the passages have a name, date or quantity.

    Large corpora are judged by passages at equal distances.
    """
    rows = range(0, len(store), max(1, len(store) // _SAMPLE))
    return sum(bool(salient(store, i)) for i in rows) < FEW * len(rows)


def salient(store: PassageStore, i: int, terms: RareTerms | None = None) -> Spans:
    """Spans of passage `i` in body pieces: in order, not overlapping, each inside one sentence."""
    return sorted(span for spans in _by_kind(store, i, terms).values() for span in spans)


def _mark_rows(
    store: PassageStore, terms: RareTerms | None, rows: range
) -> tuple[list[Spans], Counter[str]]:
    """The spans of each passage, and the number of each kind."""
    marked, kinds = [], Counter[str]()
    for i in rows:
        found = _by_kind(store, i, terms)
        kinds.update({kind: len(spans) for kind, spans in found.items()})
        marked.append(sorted(span for spans in found.values() for span in spans))
    return marked, kinds


def _by_kind(store: PassageStore, i: int, terms: RareTerms | None) -> dict[str, Spans]:
    body, offsets, bounds = store.body(i), store.body_offsets(i), store.sentences(i)
    found: dict[str, Spans] = {}
    for first, stop in pairwise(bounds.tolist()):
        begin, end = int(offsets[first, 0]), int(offsets[stop - 1, 1])
        for kind, spans in salient_characters(body[begin:end], terms).items():
            found.setdefault(kind, []).extend((begin + a, begin + b) for a, b in spans)
    return {kind: char_spans_to_pieces(offsets, spans) for kind, spans in found.items()}


def salient_characters(sentence: str, terms: RareTerms | None = None) -> dict[str, Spans]:
    """Character spans in one sentence, by kind; one that overlaps an earlier kind is dropped."""
    found = {"dates": date_spans(sentence)}
    candidates = {"quantities": quantity_spans(sentence), "names": name_spans(sentence)}
    if terms is not None:
        candidates["rare terms"] = terms.spans(sentence)
    for kind, spans in candidates.items():
        taken = [span for earlier in found.values() for span in earlier]
        found[kind] = [(a, b) for a, b in spans if not any(a < d and c < b for c, d in taken)]
    return found
