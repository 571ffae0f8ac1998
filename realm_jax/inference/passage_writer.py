"""Embeds passages that users write, with the parameters of the index."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64, Integer
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import Bounds, PassageStore
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.errors import InputError
from realm_jax.inference.padded_batches import padded_batches
from realm_jax.retrieval.encoder import Encoder
from realm_jax.text.wordpiece import WordPieces


class PassagePieces(NamedTuple):
    """Word pieces of a passage."""

    title: Int32[np.ndarray, "t"]
    body: Int32[np.ndarray, "b"]


class PassageWriter:
    """Embeds passages so that their vectors are comparable with those of an index."""

    def __init__(self, index: PublishedIndex, words: WordPieces, config: ConfigDict):
        self._words, self._rows = words, EmbedderRows(config, words)
        self._encoder = Encoder(config, words.size)
        self._params = self._encoder.place(index.query_params)

    def pieces(self, title: str, text: str) -> PassagePieces:
        """The word pieces of a passage.

        Raises:
          InputError: the text is empty, or the passage is longer than `lengths.passage`.
        """
        longest = self._rows.passage - self._rows.null_length
        (title_ids, _), (body_ids, _) = self._words.pieces([title, text])
        count = len(title_ids) + len(body_ids)
        if not len(body_ids) or count > longest:
            raise InputError(
                "the passage is too long" if count > longest else "the passage is empty",
                expected=f"a text; with its title at most {longest} word pieces (lengths.passage)",
                found=count,
            )
        return PassagePieces(title_ids, body_ids)

    def vectors(self, passages: Sequence[PassagePieces]) -> Float32[np.ndarray, "R E"]:
        """Embeds passages in one batch."""
        store = _Pieces(self._words, passages)
        rows = self._rows.passages(store, np.arange(len(passages)), self._rows.passage)
        return self._encoder.embed(self._params, rows)

    def vectors_of(
        self, store: PassageStore, ids: Int64[np.ndarray, "R"]
    ) -> Float32[np.ndarray, "R E"]:
        """Embeds passages of a corpus; compiles few batch sizes, so that one passage is fast."""
        parts = [np.empty((0, self._encoder.dims), np.float32)]
        for padded, count in padded_batches(ids.tolist()):
            rows = self._rows.passages(store, np.array(padded), self._rows.passage)
            parts.append(self._encoder.embed(self._params, rows)[:count])
        return np.concatenate(parts)


class _Pieces(PassageStore):
    """Passages in memory, of which only the rows of the embedder can be made."""

    def __init__(self, words: WordPieces, passages: Sequence[PassagePieces]):
        self.vocabulary = words
        parts = [part for passage in passages for part in passage]
        self.flat = np.concatenate([np.empty(0, np.int32), *parts])
        ends = np.cumsum([0, *map(len, parts)])
        self._starts, self._stops = ends[:-1].reshape(-1, 2), ends[1:].reshape(-1, 2)

    def title_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """See `PassageStore.title_bounds`."""
        return self._starts[rows, 0], self._stops[rows, 0]

    def body_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """See `PassageStore.body_bounds`."""
        return self._starts[rows, 1], self._stops[rows, 1]
