"""Marks salient spans by rules, without a trained tagger: what pre-training masks.

Names (by capitalisation), dates and quantities are always marked. If fewer than half of the
passages have one, as in technical or lower-cased text, rare terms are marked too.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from realm_jax.corpus.dedup import source_passages
from realm_jax.corpus.rare_terms import RareTerms
from realm_jax.corpus.spans import (
    FOLDER,
    KIND,
    REBUILD,
    TERMS,
    SpanStore,
    char_spans_to_pieces,
)
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.worker_pool import in_order
from realm_jax.storage import integrity
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
    terms = RareTerms.of(store, workers) if has_few_spans(store) else None
    kinds: Counter[str] = Counter()

    def spans() -> Iterator[Spans]:
        done = 0
        for marked in _marked(store, terms, workers, kinds):
            yield from marked
            done += len(marked)
            if progress is not None:
                progress(done)

    return SpanStore.write(
        path,
        store,
        spans(),
        source=source_passages(store, knowledge),
        knowledge=knowledge,
        kinds=kinds,
        terms=None if terms is None else terms.bits,
    )


def mark_added(store: PassageStore, corpus: PassageStore, workers: int = 1) -> SpanStore:
    """Marks passages that are added to a corpus, with the rare terms of the corpus.

    Args:
      store: the added passages.
      corpus: has marks.
      workers: see `mark_spans`.
    """
    terms, kinds = _terms_of(corpus, workers), Counter[str]()
    spans = chain.from_iterable(_marked(store, terms, workers, kinds))
    return SpanStore.write(None, store, spans, source=np.arange(len(store)), kinds=kinds)


def _terms_of(corpus: PassageStore, workers: int) -> RareTerms | None:
    """The rare terms by which a corpus was marked; None if none were marked."""
    folder = corpus.path / FOLDER
    manifest = integrity.read_sized(folder, KIND, REBUILD)
    if TERMS in manifest["files"]:
        return RareTerms(np.load(folder / TERMS, mmap_mode="r"))
    # Earlier versions did not store them.
    return RareTerms.of(corpus, workers) if manifest.get("kinds", {}).get("rare terms") else None


def _marked(
    store: PassageStore, terms: RareTerms | None, workers: int, kinds: Counter[str]
) -> Iterator[list[Spans]]:
    """The spans of the passages, part by part; adds the number of each kind to `kinds`."""
    parts = (range(a, min(a + _ROWS, len(store))) for a in range(0, len(store), _ROWS))
    for marked, counts in in_order(partial(_mark_rows, store, terms), parts, workers):
        kinds.update(counts)
        yield marked


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
