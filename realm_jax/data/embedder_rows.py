"""The rows that the embedder reads, in the form of `config.model`: prompts, one or two segments."""

from functools import cached_property

import numpy as np
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import Rows, pair_lengths, passage_rows, prefixed, single_rows
from realm_jax.errors import ConfigError
from realm_jax.text.wordpiece import WordPieces


class EmbedderRows:
    """Makes the embedder's rows from query rows and from passages.

    The reader never sees a prompt, so batches keep query rows without prompt (`data.rows`), and
    only the rows that are embedded pass through this class.

    Args:
      config: of the run; the prompts and `model.passage_row` and `lengths` are used.
      words: the vocabulary.

    Attributes:
      query: length of a query row, `lengths.query` and the query prompt.
      passage: length of a passage row that is indexed or scored, `indexed_length`; the prompt is
        part of it. Training steps read `lengths.passage`.

    Raises:
      ConfigError: a row with its prompt is longer than `model.positions`, or the passage prompt
        leaves no room for the passage.
    """

    def __init__(self, config: ConfigDict, words: WordPieces):
        self._words, self._pair = words, config.model.passage_row == "pair"
        prompts = [config.model.query_prompt, config.model.passage_prompt]
        self._query_prompt, self._prompt = (pieces for pieces, _ in words.pieces(prompts))
        self.query = config.lengths.query + len(self._query_prompt)
        self.passage = indexed_length(config)
        _require(self.query <= config.model.positions, config, "query", self.query)
        least = len(self._prompt) + 8
        _require(least <= config.lengths.passage, config, "passage", least)

    @cached_property
    def null_length(self) -> int:
        """Tokens of the null passage's row."""
        return (3 if self._pair else 2) + len(self._prompt)

    def queries(self, rows: Rows) -> Rows:
        """Query rows [B, Q] of `data.rows.query_rows`, with the query prompt after [CLS]."""
        return prefixed(rows, self._query_prompt)

    def passages(
        self, store: PassageStore, numbers: Int64[np.ndarray, "*rows"], length: int
    ) -> Rows:
        """Passage rows of this length; `NULL_PASSAGE` is the null passage."""
        if self._pair:
            return passage_rows(store, numbers, length)
        return single_rows(store, numbers, length, self._prompt)

    def passage_lengths(
        self, store: PassageStore, ids: Int64[np.ndarray, "N"]
    ) -> Int64[np.ndarray, "N"]:
        """Tokens of each passage's row, at most `passage`."""
        return np.minimum(pair_lengths(store, ids) - 3 + self.null_length, self.passage)

    def body_starts(
        self, store: PassageStore, ids: Int64[np.ndarray, "N"], length: int
    ) -> Int64[np.ndarray, "N"]:
        """Column of each passage's first body token in a row of this length."""
        start, stop = store.title_bounds(ids)
        before = self.null_length - 1
        return np.minimum(stop - start, length - before - 1) + before


def indexed_length(config: ConfigDict) -> int:
    """Word pieces of a passage row outside of training steps: `lengths.indexed`, at least P."""
    return max(int(config.lengths.indexed), int(config.lengths.passage))


def _require(fits: bool, config: ConfigDict, kind: str, length: int) -> None:
    if not fits:
        raise ConfigError(
            f"the {kind} row with its prompt is too long",
            where=f"config.model.{kind}_prompt",
            expected=f"at most model.positions = {config.model.positions} word pieces"
            if kind == "query"
            else f"at least {length} word pieces in lengths.passage",
            found=length if kind == "query" else config.lengths.passage,
            fix=f"change lengths.{kind}, or use a shorter prompt",
        )
