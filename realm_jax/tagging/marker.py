"""What marks the salient spans of passages: capitals and dates, or a tagger and dates."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol, runtime_checkable

from realm_jax.corpus.mark_spans import salient
from realm_jax.corpus.spans import char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.tagging.bio import entities
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.words import Sentence, sentence_of_text
from realm_jax.text.dates import date_spans

Spans = list[tuple[int, int]]  # (start, stop) in body pieces, in order, none overlapping


@runtime_checkable
class SpanMarker(Protocol):
    """Marks passages; `identity` tells the work of one annotator from that of another."""

    identity: str

    def spans(self, store: PassageStore, passages: range) -> Iterator[Spans]:
        """The spans of each of these passages."""


class CapitalsMarker:
    """Names by their capitals, and dates: needs no training."""

    identity = "capitals and dates"

    def spans(self, store: PassageStore, passages: range) -> Iterator[Spans]:
        """See `corpus.annotate`."""
        return (salient(store, i) for i in passages)


class TaggerMarker:
    """The entities of a trained tagger, and dates; where they overlap, the date stays."""

    def __init__(self, tagger: Tagger, identity: str):
        self._tagger, self.identity = tagger, f"tagger {identity} and dates"

    def spans(self, store: PassageStore, passages: range) -> Iterator[Spans]:
        """Each sentence is tagged among the others of its passage."""
        cut = [_sentences(store, i) for i in passages]
        tagged = self._tagger.tags([[sentence for _, sentence in own] for own in cut])
        for i, own, tags in zip(passages, cut, tagged, strict=True):
            found: list[tuple[int, int]] = []
            for (begin, sentence), sentence_tags in zip(own, tags, strict=True):
                marked = salient_characters(sentence, sentence_tags)
                found += [(begin + a, begin + b) for a, b in marked]
            yield char_spans_to_pieces(store.body_offsets(i), found)


def salient_characters(sentence: Sentence, tags: list[str]) -> list[tuple[int, int]]:
    """Character spans of dates, and of entities that overlap none, in order."""
    dates = date_spans(sentence.text)
    names = [
        (sentence.words[entity.start][0], sentence.words[entity.stop - 1][1])
        for entity in entities(tags)
    ]
    names = [(a, b) for a, b in names if not any(a < d and c < b for c, d in dates)]
    return sorted(dates + names)


def _sentences(store: PassageStore, i: int) -> list[tuple[int, Sentence]]:
    """The sentences of a passage and the character of the body that each begins at."""
    body, offsets, bounds = store.body(i), store.body_offsets(i), store.sentences(i)
    found = []
    for first, stop in pairwise(bounds.tolist()):
        begin, end = int(offsets[first, 0]), int(offsets[stop - 1, 1])
        found.append((begin, sentence_of_text(body[begin:end])))
    return found
