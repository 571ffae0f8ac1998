"""Padded input rows. Only this module places [CLS], [SEP], segments and padding.

| row     | layout                          | segment 0     | segment 1 |
|---------|---------------------------------|---------------|-----------|
| query   | `[CLS] x [SEP]`                 | all           |           |
| passage | `[CLS] title [SEP] body [SEP]`  | through first `[SEP]` | rest |
| joint   | `[CLS] x [SEP] body [SEP]`      | through first `[SEP]` | rest |
| single  | `[CLS] prompt title body [SEP]` | all           |           |

The row of a passage is `passage` or `single` (`data.embedder_rows` chooses). Only the embedder's
rows have prompts.
A row that is too long loses tokens from the end of the body; a title longer than the row is cut
too. The closing `[SEP]` is always kept. The null passage has id -1, an empty title and an empty
body.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from realm_jax.corpus.store import PassageStore
from realm_jax.text.wordpiece import WordPieces

NULL_PASSAGE = -1
_LONG_RUN = 32  # tokens; above this mean length, `_fill` copies row by row


class Rows(NamedTuple):
    """Token ids, mask (True on real tokens) and segments; any leading axes, then length L."""

    ids: Int32[Any, "*rows L"]
    mask: Bool[Any, "*rows L"]
    segments: Int32[Any, "*rows L"]


def query_rows(pieces: list[np.ndarray], length: int, words: WordPieces) -> Rows:
    """Query rows for the embedder; a query longer than `length` - 2 tokens is truncated.

    Args:
      pieces: token ids of each query, without special tokens.
      length: Q.
      words: the vocabulary.
    """
    counts = np.array([min(len(p), length - 2) for p in pieces], np.int64)
    ids = np.full((len(pieces), length), words.pad, np.int32)
    for row, (query, count) in enumerate(zip(pieces, counts, strict=True)):
        ids[row, 0] = words.cls
        ids[row, 1 : count + 1] = query[:count]
        ids[row, count + 1] = words.sep
    mask = np.arange(length) < counts[:, None] + 2
    return Rows(ids, mask, np.zeros_like(ids))


def passage_rows(store: PassageStore, numbers: Int64[np.ndarray, "*rows"], length: int) -> Rows:
    """Passage rows for the embedder.

    Args:
      store: the knowledge corpus.
      numbers: passage ids; `NULL_PASSAGE` is the null passage.
      length: P.
    """
    words, flat = store.vocabulary, numbers.reshape(-1)
    title = _bounds(store.title_bounds, flat)
    ids, titles = _copy_after_cls(store.flat, title, length - 3, length, words)
    bodies = _append(store.flat, ids, titles + 2, _bounds(store.body_bounds, flat), words)
    return _shaped(ids, titles + 2, bodies, numbers.shape)


def single_rows(
    store: PassageStore,
    numbers: Int64[np.ndarray, "*rows"],
    length: int,
    prompt: Int32[np.ndarray, "p"],
) -> Rows:
    """Passage rows of one segment, as sentence-transformers encodes the text "title body".

    Args:
      store: the knowledge corpus.
      numbers: passage ids; `NULL_PASSAGE` is the null passage.
      length: P; at least two more than the prompt has tokens.
      prompt: tokens after [CLS].
    """
    words, flat = store.vocabulary, numbers.reshape(-1)
    start, size = _bounds(store.title_bounds, flat)
    size = np.minimum(size, length - 2 - len(prompt))
    ids = np.full((len(flat), length), words.pad, np.int32)
    ids[:, 0] = words.cls
    ids[:, 1 : len(prompt) + 1] = prompt
    _fill(store.flat, ids, np.full_like(size, len(prompt) + 1), start, size)
    bodies = _bounds(store.body_bounds, flat)
    total = _append(store.flat, ids, size + len(prompt) + 1, bodies, words)
    return _shaped(ids, total, total, numbers.shape)


def prefixed(rows: Rows, prompt: Int32[np.ndarray, "p"]) -> Rows:
    """Rows [B, L] of one segment with a prompt after [CLS], as rows [B, L + p]."""
    count = len(prompt)
    if not count:
        return rows

    def inserted(part: np.ndarray, value: Any) -> np.ndarray:
        new = np.broadcast_to(np.asarray(value, part.dtype), (len(part), count))
        return np.concatenate([part[:, :1], new, part[:, 1:]], axis=1)

    return Rows(inserted(rows.ids, prompt), inserted(rows.mask, True), inserted(rows.segments, 0))


def pair_lengths(store: PassageStore, ids: Int64[np.ndarray, "N"]) -> Int64[np.ndarray, "N"]:
    """Tokens of `[CLS] title [SEP] body [SEP]` of each passage, not cut."""
    bounds = (store.title_bounds(ids), store.body_bounds(ids))
    return np.asarray(sum(stop - start for start, stop in bounds) + 3)


def joint_rows(
    queries: Rows, store: PassageStore, numbers: Int64[np.ndarray, "B K"], length: int
) -> Rows:
    """Joint rows for the reader: each query followed by each of its K passages.

    The title is omitted, as in the released code.

    Args:
      queries: rows [B, Q].
      store: the knowledge corpus.
      numbers: passage ids; `NULL_PASSAGE` is the null passage.
      length: J.
    """
    candidates = numbers.shape[1]
    used = np.repeat(queries.mask.sum(-1), candidates)
    ids = np.full((numbers.size, length), store.vocabulary.pad, np.int32)
    width = queries.ids.shape[-1]
    ids[:, :width] = np.repeat(queries.ids, candidates, axis=0)
    bounds = _bounds(store.body_bounds, numbers.reshape(-1))
    total = _append(store.flat, ids, used, bounds, store.vocabulary)
    return _shaped(ids, used, total, numbers.shape)


def _bounds(lookup, numbers: Int64[np.ndarray, "R"]) -> tuple[np.ndarray, np.ndarray]:
    """Start and size of each passage part in the flat token array; the null passage has size 0."""
    real = numbers >= 0
    start, stop = lookup(np.where(real, numbers, 0))
    return start, np.where(real, stop - start, 0)


def _copy_after_cls(flat, bounds, most: int, length: int, words: WordPieces):
    """New rows `[CLS] tokens [SEP]`, and the number of tokens copied into each."""
    start, size = bounds
    size = np.minimum(size, most)
    ids = np.full((len(size), length), words.pad, np.int32)
    ids[:, 0] = words.cls
    _fill(flat, ids, np.ones_like(size), start, size)
    ids[np.arange(len(size)), size + 1] = words.sep
    return ids, size


def _append(flat, ids, at, bounds, words: WordPieces) -> Int64[np.ndarray, "R"]:
    """Writes tokens and a closing [SEP] from column `at`; returns the new length of each row."""
    start, size = bounds
    size = np.minimum(size, ids.shape[1] - 1 - at)
    _fill(flat, ids, at, start, size)
    ids[np.arange(len(size)), at + size] = words.sep
    return at + size + 1


def _fill(flat, ids, at, start, size) -> None:
    """Copies flat[start[r] : start[r] + size[r]] to row r of `ids`, from column at[r].

    One gather over all rows is faster for short runs (titles), one copy per row for long runs.
    """
    if size.sum() < _LONG_RUN * len(size):
        rows = np.repeat(np.arange(len(size)), size)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
        ids[rows, np.repeat(at, size) + within] = flat[np.repeat(start, size) + within]
        return
    bounds = zip(at.tolist(), start.tolist(), size.tolist(), strict=True)
    for row, (column, begin, count) in zip(ids, bounds, strict=True):
        row[column : column + count] = flat[begin : begin + count]


def _shaped(ids, first_segment, total, shape) -> Rows:
    columns = np.arange(ids.shape[1], dtype=np.int32)
    mask = columns < total[:, None].astype(np.int32)
    segments = (columns >= first_segment[:, None].astype(np.int32)) & mask
    shape = (*shape, ids.shape[1])
    return Rows(ids.reshape(shape), mask.reshape(shape), segments.astype(np.int32).reshape(shape))
