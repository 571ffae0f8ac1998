"""Copies passages of finished corpora into a corpus that is being written."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Int32, Int64

from realm_jax.corpus.split import Block, block_of
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import StoreWriter

NO_PART = -1  # of a passage without text
_MOST_ROWS = 4096  # copied at a time


def copy_rows(
    writer: StoreWriter,
    parts: Sequence[PassageStore],
    part: Int32[np.ndarray, "R"],
    row: Int64[np.ndarray, "R"],
) -> None:
    """Appends R passages to `writer`.

    Neighbours of one document stay one document.

    Args:
      writer: has the vocabulary of the parts.
      parts: where the passages are; not corpora of several generations.
      part: index in `parts` of each passage; NO_PART: a passage without text and document.
      row: of each passage in its part.
    """
    before = (NO_PART, -1)  # part and document of the passage before
    for start, stop in _runs(part, row):
        number = int(part[start])
        if number == NO_PART:
            writer.append(_empty(writer, stop - start))
            before = (NO_PART, -1)
            continue
        block = parts[number].block(int(row[start]), int(row[stop - 1]) + 1)
        document = block.document
        local = np.cumsum(np.diff(document, prepend=document[0]) != 0)
        local -= before == (number, int(document[0]))
        writer.append(replace(block, document=local, documents=int(local[-1]) + 1))
        before = (number, int(document[-1]))


def _runs(part: np.ndarray, row: np.ndarray) -> Iterator[tuple[int, int]]:
    """Starts and stops of neighbours that are also neighbours in their part."""
    follows = (np.diff(part) == 0) & ((np.diff(row) == 1) | (part[1:] == NO_PART))
    starts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(part)]
    for start, stop in pairwise(starts):
        for first in range(start, stop, _MOST_ROWS):
            yield first, min(first + _MOST_ROWS, stop)


def _empty(writer: StoreWriter, count: int) -> Block:
    """Passages without text; their document is -1."""
    zeros = np.zeros(count, np.int64)
    return replace(
        block_of([], writer.tokenizer),
        piece_counts=zeros,
        title_pieces=zeros.astype(np.int32),
        sentence_counts=zeros,
        text_bytes=zeros,
        title_bytes=zeros.astype(np.int32),
        document=zeros - 1 - writer.documents,
        document_ids=[""] * count,
    )
