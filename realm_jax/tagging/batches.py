"""Sentences to the rows that the tagger reads, and tagged sentences to its training batches.

A document is cut into windows of whole sentences that fill a row as far as they go, so each
sentence is read among its neighbours (BERT, section 5.3, gave its tagger all the context there is).
A word's label stands on its first piece; the other pieces count for nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from realm_jax.data import sampling
from realm_jax.tagging.conll import TaggedSentence
from realm_jax.tagging.words import Sentence, sentence_of_words, shape
from realm_jax.text.wordpiece import WordPieces


class TaggerRows(NamedTuple):
    """Rows `[CLS] pieces [SEP]`: ids, true on real pieces, and how each piece's word is written."""

    ids: Int32[Any, "B L"]
    mask: Bool[Any, "B L"]
    shapes: Int32[Any, "B L"]


class TaggerBatch(NamedTuple):
    """Rows with the label of each word on its first piece; `weights` is 1 there and 0 elsewhere."""

    rows: TaggerRows
    labels: Int32[Any, "B L"]
    weights: Float32[Any, "B L"]


class Window(NamedTuple):
    """A run of pieces of one document; `words` tells which word of the document each is of."""

    document: int
    ids: Int32[np.ndarray, "n"]
    shapes: Int32[np.ndarray, "n"]
    words: Int64[np.ndarray, "n"]

    @property
    def first(self) -> Bool[np.ndarray, "n"]:
        """True on the first piece of each word; words are not cut between windows."""
        return np.diff(self.words, prepend=-1) > 0


def windows(
    documents: Sequence[Sequence[Sentence]], pieces: WordPieces, length: int
) -> list[Window]:
    """The windows of all documents in order; with `[CLS]` and `[SEP]` each fits `length` pieces.

    A cut falls between sentences where it can, else between words; what a single word has beyond a
    whole row is left out. A word of no piece (a control character) is in no window.
    """
    flat = [sentence for document in documents for sentence in document]
    encoded = iter(zip(flat, pieces.pieces([s.text for s in flat]), strict=True))
    found: list[Window] = []
    for number, document in enumerate(documents):
        parts, starts, words, size = [], [], 0, 0
        for _ in document:
            sentence, (ids, offsets) = next(encoded)
            owners = _owners(sentence, offsets)
            kept = owners >= 0
            shapes = np.array([shape(sentence.text[a:b]) for a, b in sentence.words], np.int32)
            owners = owners[kept]
            parts.append((ids[kept], shapes[owners], owners + words))
            starts.append(size)
            words, size = words + len(sentence.words), size + len(owners)
        if size:
            columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
            found += _cut(number, columns, np.array(starts), length - 2)
    return found


def _owners(sentence: Sentence, offsets: Int32[np.ndarray, "n 2"]) -> Int64[np.ndarray, "n"]:
    """The word that each piece begins in; -1 between words."""
    spans = np.array(sentence.words, np.int64).reshape(-1, 2)
    owners = np.searchsorted(spans[:, 0], offsets[:, 0], "right") - 1
    inside = (owners >= 0) & (offsets[:, 0] < np.append(spans[:, 1], 0)[owners])
    return np.where(inside, owners, -1)


def _cut(number: int, columns: list[np.ndarray], sentences: np.ndarray, room: int) -> list[Window]:
    ids, shapes, words = columns
    firsts = np.flatnonzero(np.diff(words, prepend=-1) > 0)
    found, start = [], 0
    while start < len(ids):
        following = _next_start(start, start + room, sentences, firsts, len(ids))
        stop = min(start + room, following)
        found.append(Window(number, ids[start:stop], shapes[start:stop], words[start:stop]))
        start = following
    return found


def _next_start(start: int, most: int, sentences: np.ndarray, firsts: np.ndarray, end: int) -> int:
    """The last sentence in reach, or else the last word; the next word if one fills the row."""
    if most >= end:
        return end
    for starts in (sentences, firsts):
        place = int(starts[np.searchsorted(starts, most, "right") - 1])
        if place > start:
            return place
    later = firsts[firsts > most]
    return int(later[0]) if len(later) else end


def rows(chosen: Sequence[Window], length: int, pieces: WordPieces) -> TaggerRows:
    """Padded rows of windows."""
    ids = np.full((len(chosen), length), pieces.pad, np.int32)
    shapes = np.zeros_like(ids)
    sizes = np.array([len(window.ids) for window in chosen], np.int64)
    for row, (window, size) in enumerate(zip(chosen, sizes, strict=True)):
        ids[row, 0], ids[row, size + 1] = pieces.cls, pieces.sep
        ids[row, 1 : size + 1] = window.ids
        shapes[row, 1 : size + 1] = window.shapes
    return TaggerRows(ids, np.arange(length) < sizes[:, None] + 2, shapes)


class TaggerSource:
    """Training batches of tagged documents.

    Args:
      documents: see `data.conll`.
      pieces: the tagger's vocabulary.
      labels: the classes in order, see `bio.labels`.
      length: of a row, in pieces.
      hidden: share of words shown as `[UNK]`, so that writing and context are learned too.
      seed: of the run.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[TaggedSentence]],
        pieces: WordPieces,
        labels: Sequence[str],
        length: int,
        hidden: float,
        seed: int,
    ):
        self._pieces, self._length, self._hidden, self._seed = pieces, length, hidden, seed
        number = {label: i for i, label in enumerate(labels)}
        self._labels = [
            np.array([number[tag] for s in document for tag in s.tags], np.int32)
            for document in documents
        ]
        self._windows = windows(sentences_of(documents), pieces, length)

    def __len__(self) -> int:
        return len(self._windows)

    def batch(
        self, step: int, size: int, batch_rows: Int64[np.ndarray, "R"] | None = None
    ) -> TaggerBatch:
        """The batch of one training step, or what is at `batch_rows` of it."""
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        drawn = sampling.example_ids(self._seed, step, size, len(self._windows))[batch_rows]
        chosen = [self._windows[i] for i in drawn]
        made = rows(chosen, self._length, self._pieces)
        labels = np.zeros_like(made.ids)
        weights = np.zeros(made.ids.shape, np.float32)
        for row, window in enumerate(chosen):
            begins = np.flatnonzero(window.first)
            labels[row, begins + 1] = self._labels[window.document][window.words[begins]]
            weights[row, begins + 1] = 1.0
        rng = sampling.generator(self._seed, "hidden words", step)
        drawn = (rng.random((size, self._length + 1)) < self._hidden)[batch_rows]
        return TaggerBatch(self._with_hidden_words(made, weights, drawn), labels, weights)

    def _with_hidden_words(self, made: TaggerRows, weights: np.ndarray, drawn: np.ndarray) -> TaggerRows:
        word = weights.cumsum(1).astype(np.int64)  # counts from 1; 0 is [CLS]
        hidden = np.take_along_axis(drawn, word, axis=1) & (made.shapes > 0)
        return made._replace(ids=np.where(hidden, np.int32(self._pieces.unk), made.ids))


def sentences_of(documents: Sequence[Sequence[TaggedSentence]]) -> list[list[Sentence]]:
    """The same documents as text, without their tags."""
    return [[sentence_of_words(s.words) for s in document] for document in documents]
