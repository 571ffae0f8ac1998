"""Markers of salient spans in passages: by rules, or entities of a tagger and dates."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol, runtime_checkable

from realm_jax.corpus.mark_spans import has_few_spans, salient
from realm_jax.corpus.rare_terms import RareTerms
from realm_jax.corpus.spans import char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.tagging.bio import entities
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.words import Sentence, sentence_of_text
from realm_jax.text.dates import date_spans

Spans = list[tuple[int, int]]  # (start, stop) in body tokens, in order, without overlap


@runtime_checkable
class SpanMarker(Protocol):
    """Marks salient spans. Shards of markers with different `identity` are never mixed."""

    identity: str

    def spans(self, store: PassageStore, passages: range) -> Iterator[Spans]:
        """Yields the spans of each of these passages."""


class CapitalsMarker:
    """Names found by capitalisation, dates and quantities; needs no training.

    Args:
      terms: rare terms of the corpus, which are marked too; None: there are none.
    """

    def __init__(self, terms: RareTerms | None = None):
        self._terms = terms
        rare = "" if terms is None else ", and rare terms"
        self.identity = f"capitals, dates and quantities{rare}"

    @classmethod
    def of(cls, store: PassageStore) -> "CapitalsMarker":
        """Marks what `mark_spans` marks: rare terms where a corpus has few other spans."""
        return cls(RareTerms.of(store) if has_few_spans(store) else None)

    def spans(self, store: PassageStore, passages: range) -> Iterator[Spans]:
        """See `corpus.mark_spans`."""
        return (salient(store, i, self._terms) for i in passages)


class TaggerMarker:
    """Entities found by a trained tagger, and dates; an entity that overlaps a date is dropped."""

    def __init__(self, tagger: Tagger, identity: str):
        self._tagger, self.identity = tagger, f"tagger {identity} and dates"

    def spans(self, store: PassageStore, passages: range) -> Iterator[Spans]:
        """Tags each sentence with the other sentences of its passage as context."""
        split = [_sentences(store, i) for i in passages]
        tagged = self._tagger.tags([[sentence for _, sentence in pairs] for pairs in split])
        for i, pairs, tags in zip(passages, split, tagged, strict=True):
            found: list[tuple[int, int]] = []
            for (begin, sentence), sentence_tags in zip(pairs, tags, strict=True):
                marked = salient_characters(sentence, sentence_tags)
                found += [(begin + a, begin + b) for a, b in marked]
            yield char_spans_to_pieces(store.body_offsets(i), found)


def salient_characters(sentence: Sentence, tags: list[str]) -> list[tuple[int, int]]:
    """Character spans of the dates, and of the entities that overlap no date, in order."""
    dates = date_spans(sentence.text)
    names = [
        (sentence.words[entity.start][0], sentence.words[entity.stop - 1][1])
        for entity in entities(tags)
    ]
    names = [(a, b) for a, b in names if not any(a < d and c < b for c, d in dates)]
    return sorted(dates + names)


def _sentences(store: PassageStore, i: int) -> list[tuple[int, Sentence]]:
    """Each sentence of a passage with its first character in the body."""
    body, offsets, bounds = store.body(i), store.body_offsets(i), store.sentences(i)
    found = []
    for first, stop in pairwise(bounds.tolist()):
        begin, end = int(offsets[first, 0]), int(offsets[stop - 1, 1])
        found.append((begin, sentence_of_text(body[begin:end])))
    return found
