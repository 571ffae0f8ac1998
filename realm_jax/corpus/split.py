"""Splits documents into passages of whole sentences.

Workers return a `Block`: consecutive passages as flat arrays, in the layout of the store.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from realm_jax.corpus.documents import Document
from realm_jax.corpus.tally import Tally
from realm_jax.text.sentences import sentence_bounds
from realm_jax.text.wordpiece import Pieces, WordPieces

PASSAGE_PIECES = 288  # REALM section 4: [CLS] title [SEP] body [SEP]
SPECIAL_PIECES = 3
LEAST_PIECES = 2 * SPECIAL_PIECES  # of a passage; with fewer the body would be empty


@dataclass(frozen=True)
class Block:
    """Consecutive passages as flat arrays: N passages, T word pieces, S sentences.

    Attributes:
      pieces: word-piece ids; for each passage those of its title, then those of its body.
      offsets: (start, stop) of each piece in characters of the title or the body.
      piece_counts: pieces per passage, title and body.
      title_pieces: pieces per title.
      sentence_starts: index of the first piece of each sentence in its body.
      sentence_counts: sentences per passage.
      text: UTF-8 of title and body of each passage.
      text_bytes: bytes per passage, title and body.
      title_bytes: bytes per title.
      document: index of the document of each passage, counted from 0 within the block.
      document_ids: id of the document of each passage, as its source gives it; "" if none.
      documents: number of documents with at least one passage.
      remarks: documents by what happened to them: `empty_body`, skipped because they have no word
        pieces; `sentence_divided`, once for each such sentence; `title_cut` to fewer pieces.
    """

    pieces: Int32[np.ndarray, "T"]
    offsets: Int32[np.ndarray, "T 2"]
    piece_counts: Int64[np.ndarray, "N"]
    title_pieces: Int32[np.ndarray, "N"]
    sentence_starts: Int32[np.ndarray, "S"]
    sentence_counts: Int64[np.ndarray, "N"]
    text: bytes
    text_bytes: Int64[np.ndarray, "N"]
    title_bytes: Int32[np.ndarray, "N"]
    document: Int64[np.ndarray, "N"]
    document_ids: Sequence[str]
    documents: int
    remarks: Tally


def split(
    documents: Sequence[Document], tokenizer: WordPieces, passage_pieces: int = PASSAGE_PIECES
) -> Block:
    """Splits documents into passages of at most `passage_pieces` pieces, with [CLS] and [SEP].

    Passages are filled greedily with whole sentences, without overlap (REALM section 4). A sentence
    that is longer than a passage is divided between words, so that nothing is left out. The pieces
    of a title are truncated so that at least half of the passage remains for the body; its text is
    kept.
    """
    texts = []
    for document in documents:
        body = document.text
        sentences = [body[a:b] for a, b in sentence_bounds(body)]
        texts.append(_Text(document.title, sentences, document.id, document.where))
    return _pack(texts, tokenizer, passage_pieces, cut=True)


def block_of(passages: Sequence[tuple[str, Sequence[str]]], tokenizer: WordPieces) -> Block:
    """A block with one passage per (title, sentences), without a limit on its length."""
    texts = [_Text(title, sentences, "", "") for title, sentences in passages]
    return _pack(texts, tokenizer, passage_pieces=2**31, cut=False)


class _Text(NamedTuple):
    title: str
    sentences: Sequence[str]
    document_id: str
    where: str


def _pack(
    texts: Sequence[_Text],
    tokenizer: WordPieces,
    passage_pieces: int,
    *,
    cut: bool,
) -> Block:
    strings = [string for text in texts for string in (text.title, *text.sentences)]
    tokenized = iter(tokenizer.pieces(strings))
    builder = _BlockBuilder()
    for title, sentences, document_id, where in texts:
        whole_title = next(tokenized)
        title_piece = _shorten(whole_title, (passage_pieces - SPECIAL_PIECES) // 2)
        pairs = [(s, next(tokenized)) for s in sentences]
        # A sentence of control characters has no pieces.
        pairs = [(s, p) for s, p in pairs if len(p[0])]
        if not pairs:
            builder.remarks.add("empty_body", where)
            continue
        if len(whole_title[0]) > len(title_piece[0]):
            builder.remarks.add("title_cut", where)
        budget = passage_pieces - SPECIAL_PIECES - len(title_piece[0])
        if cut:
            for _ in filter(lambda pair: len(pair[1][0]) > budget, pairs):
                builder.remarks.add("sentence_divided", where)
            pairs = [part for pair in pairs for part in _divided(pair, budget)]
        lengths = [len(p[0]) for _, p in pairs]
        groups = greedy(lengths, budget) if cut else [(0, len(pairs))]
        for first, stop in groups:
            builder.add(title, title_piece, pairs[first:stop], document_id)
        builder.documents += 1
    return builder.block()


def _divided(pair: tuple[str, Pieces], most: int) -> Iterator[tuple[str, Pieces]]:
    """Parts of a sentence of at most `most` pieces, divided at white space if there is any."""
    sentence, (ids, offsets) = pair
    if len(ids) <= most:
        yield pair
        return
    words = np.flatnonzero(offsets[1:, 0] > offsets[:-1, 1]) + 1  # pieces after white space
    first = 0
    while first < len(ids):
        stop = min(first + most, len(ids))
        if stop < len(ids):
            before = np.searchsorted(words, stop, "right")
            word = int(words[before - 1]) if before else 0
            stop = word if word > first else stop
        begin = int(offsets[first, 0])
        text = sentence[begin : int(offsets[stop - 1, 1])]
        yield text, (ids[first:stop], offsets[first:stop] - np.int32(begin))
        first = stop


def greedy(lengths: Iterable[int], budget: int) -> Iterator[tuple[int, int]]:
    """Groups (first, stop) of consecutive items whose lengths sum to at most `budget`.

    An item longer than the budget is a separate group: greedy([3, 3, 9, 1], 6) yields (0, 2),
    (2, 3), (3, 4).
    """
    first = total = stop = 0
    for length in lengths:
        if stop > first and total + length > budget:
            yield first, stop
            first, total = stop, 0
        total += length
        stop += 1
    if stop > first:
        yield first, stop


def _shorten(pieces: Pieces, most: int) -> Pieces:
    ids, offsets = pieces
    return ids[:most], offsets[:most]


class _BlockBuilder:
    """Collects passages as lists of small arrays; `block` concatenates them."""

    def __init__(self) -> None:
        self.documents = 0
        self.remarks = Tally()
        self._ids: list[np.ndarray] = []
        self._offsets: list[np.ndarray] = []
        self._counts: list[tuple[int, int, int, int, int, int]] = []
        self._starts: list[int] = []
        self._texts: list[bytes] = []
        self._document_ids: list[str] = []

    def add(
        self,
        title: str,
        title_piece: Pieces,
        pairs: Sequence[tuple[str, Pieces]],
        document_id: str,
    ) -> None:
        self._document_ids.append(document_id)
        self._ids.append(title_piece[0])
        self._offsets.append(title_piece[1])
        at = characters = 0
        for sentence, (ids, offsets) in pairs:
            self._starts.append(at)
            self._ids.append(ids)
            self._offsets.append(offsets + np.int32(characters))
            at += len(ids)
            characters += len(sentence) + 1  # plus the space before the next sentence
        head, body = title.encode(), " ".join(s for s, _ in pairs).encode()
        self._texts += [head, body]
        titles = len(title_piece[0])
        self._counts.append(
            (titles + at, titles, len(pairs), len(head) + len(body), len(head), self.documents)
        )

    def block(self) -> Block:
        counts = np.array(self._counts, np.int64).reshape(-1, 6)
        return Block(
            pieces=np.concatenate([np.empty(0, np.int32), *self._ids]),
            offsets=np.concatenate([np.empty((0, 2), np.int32), *self._offsets]),
            piece_counts=counts[:, 0],
            title_pieces=counts[:, 1].astype(np.int32),
            sentence_starts=np.array(self._starts, np.int32),
            sentence_counts=counts[:, 2],
            text=b"".join(self._texts),
            text_bytes=counts[:, 3],
            title_bytes=counts[:, 4].astype(np.int32),
            document=counts[:, 5],
            document_ids=self._document_ids,
            documents=self.documents,
            remarks=self.remarks,
        )
