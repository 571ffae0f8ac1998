"""Input rows and training batches of the tagger.

A document is split into windows of consecutive whole sentences, each as long as a row allows.
Thus a sentence is tagged with its neighbours as context (BERT, section 5.3, uses the maximal
document context). The label of a word is at its first token; its other tokens have weight 0.
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
    """Rows `[CLS] tokens [SEP]`: ids, mask (True on real tokens), and the shape of each word."""

    ids: Int32[Any, "B L"]
    mask: Bool[Any, "B L"]
    shapes: Int32[Any, "B L"]


class TaggerBatch(NamedTuple):
    """Rows with the label of each word at its first token; `weights` is 1 there and 0 elsewhere."""

    rows: TaggerRows
    labels: Int32[Any, "B L"]
    weights: Float32[Any, "B L"]


class Window(NamedTuple):
    """Consecutive tokens of one document; `words` is the document's word number of each token."""

    document: int
    ids: Int32[np.ndarray, "n"]
    shapes: Int32[np.ndarray, "n"]
    words: Int64[np.ndarray, "n"]

    @property
    def first(self) -> Bool[np.ndarray, "n"]:
        """True on the first token of each word; a word is never split between windows."""
        return np.diff(self.words, prepend=-1) > 0


def windows(
    documents: Sequence[Sequence[Sentence]], pieces: WordPieces, length: int
) -> list[Window]:
    """The windows of all documents in order; with `[CLS]` and `[SEP]` each fits `length` tokens.

    A document is split between sentences where possible, else between words. A word longer than a
    row is truncated. A word without tokens (a control character) is in no window.
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
    """The word in which each token begins; -1 between words."""
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
    """Start of the next window: the last sentence start up to `most`, else the last word start.

    If one word fills the row, the next window begins at the word after it.
    """
    if most >= end:
        return end
    for starts in (sentences, firsts):
        last = int(starts[np.searchsorted(starts, most, "right") - 1])
        if last > start:
            return last
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
      documents: tagged sentences of each document, see `conll.read_conll`.
      pieces: the tagger's vocabulary.
      labels: the classes in order, see `bio.labels`.
      length: row length in tokens.
      unknown_share: share of words replaced by `[UNK]`, so shape and context are learned too.
      seed: the run's seed.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[TaggedSentence]],
        pieces: WordPieces,
        labels: Sequence[str],
        length: int,
        unknown_share: float,
        seed: int,
    ):
        self._pieces, self._length, self._seed = pieces, length, seed
        self._unknown_share = unknown_share
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
        """The batch of one training step; only the rows `batch_rows` if it is given."""
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        drawn = sampling.example_ids(self._seed, step, size, len(self._windows))[batch_rows]
        chosen = [self._windows[i] for i in drawn]
        batch = rows(chosen, self._length, self._pieces)
        labels = np.zeros_like(batch.ids)
        weights = np.zeros(batch.ids.shape, np.float32)
        for row, window in enumerate(chosen):
            begins = np.flatnonzero(window.first)
            labels[row, begins + 1] = self._labels[window.document][window.words[begins]]
            weights[row, begins + 1] = 1.0
        rng = sampling.generator(self._seed, "hidden words", step)
        unknown = (rng.random((size, self._length + 1)) < self._unknown_share)[batch_rows]
        return TaggerBatch(self._with_unknown_words(batch, weights, unknown), labels, weights)

    def _with_unknown_words(
        self, batch: TaggerRows, weights: np.ndarray, unknown: np.ndarray
    ) -> TaggerRows:
        """Replaces all tokens of word i of row b by [UNK] if `unknown[b, i]`."""
        word = weights.cumsum(1).astype(np.int64)  # counts from 1; 0 is [CLS]
        replaced = np.take_along_axis(unknown, word, axis=1) & (batch.shapes > 0)
        return batch._replace(ids=np.where(replaced, np.int32(self._pieces.unk), batch.ids))


def sentences_of(documents: Sequence[Sequence[TaggedSentence]]) -> list[list[Sentence]]:
    """The documents as sentences without tags."""
    return [[sentence_of_words(s.words) for s in document] for document in documents]
