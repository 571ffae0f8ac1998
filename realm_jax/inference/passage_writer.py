"""Turns title and text written by a user into a passage with word pieces and a vector."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import PassageStore
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.errors import InputError
from realm_jax.inference.edits import EditedStore, WrittenPassage
from realm_jax.retrieval.encoder import Encoder


class PassageWriter:
    """Embeds passages with the parameters of the index, so that all vectors are comparable."""

    def __init__(self, index: PublishedIndex, store: PassageStore, config: ConfigDict):
        self._store, self._rows = store, EmbedderRows(config, store.vocabulary)
        self._encoder = Encoder(config, store.vocabulary.size)
        self._params = self._encoder.place(index.query_params)

    def write(self, title: str, text: str) -> WrittenPassage:
        """Returns the passage with its vector.

        Raises:
          InputError: the text is empty, or the passage is longer than `lengths.passage`.
        """
        passage = self.pieces(title, text)
        return replace(passage, vector=self.vectors([passage])[0])

    def pieces(self, title: str, text: str) -> WrittenPassage:
        """Returns the passage in word pieces, without a vector; raises as `write`."""
        words, longest = self._store.vocabulary, self._rows.passage - self._rows.null_length
        (title_ids, _), (body_ids, offsets) = words.pieces([title, text])
        count = len(title_ids) + len(body_ids)
        if not len(body_ids) or count > longest:
            raise InputError(
                "the passage is too long" if count > longest else "the passage is empty",
                expected=f"a text; with its title at most {longest} word pieces (lengths.passage)",
                found=count,
            )
        return WrittenPassage(title, text, title_ids, body_ids, offsets)

    def vectors(self, passages: list[WrittenPassage]) -> Float32[np.ndarray, "R E"]:
        """Embeds passages with the parameters of the index."""
        store = EditedStore(self._store, dict(enumerate(passages)))
        rows = self._rows.passages(store, np.arange(len(passages)), self._rows.passage)
        return self._encoder.embed(self._params, rows)
