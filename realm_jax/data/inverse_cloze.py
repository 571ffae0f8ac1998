"""Inverse cloze pairs for pre-training the embedder (ORQA section 5, REALM section 3.4)."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data import sampling
from realm_jax.data.rows import Rows, passage_rows, query_rows


class InverseClozeBatch(NamedTuple):
    """Sentences and their passages; most passages do not contain the sentence."""

    queries: Rows
    passages: Rows
    ids: Int64[Any, "B"]


class InverseClozeSource:
    """Draws a passage and uses one of its sentences as the query.

    With probability `stages.ict.removal_share` the sentence is removed from the passage. A share
    `stages.ict.mask_share` of the query's tokens is replaced by [MASK], because the queries of
    REALM contain [MASK] too.
    """

    def __init__(self, store: PassageStore, config: ConfigDict):
        self.store, self.lengths = store, config.lengths
        self.removal, self.mask_share = (
            config.stages.ict.removal_share,
            config.stages.ict.mask_share,
        )
        self.seed = config.seed

    def batch(
        self, step: int, size: int, batch_rows: Int64[np.ndarray, "R"] | None = None
    ) -> InverseClozeBatch:
        """The pairs of one training step; only those at `batch_rows` if it is given."""
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        rows = sampling.example_ids(self.seed, step, size, len(self.store))[batch_rows]
        passages = passage_rows(self.store, rows, self.lengths.passage)
        sentences, masked = [], np.empty((len(rows), self.lengths.query), bool)
        for index, row in enumerate(rows.tolist()):
            rng = sampling.generator(self.seed, "ict", step, int(batch_rows[index]))
            masked[index] = rng.random(self.lengths.query) < self.mask_share
            bounds = self.store.sentences(row)
            sentence = int(rng.integers(len(bounds) - 1))
            start, stop = bounds[sentence : sentence + 2].tolist()
            sentences.append(self.store.body_ids(row)[start:stop])
            if rng.random() < self.removal and len(bounds) > 2:
                _remove(passages, index, start, stop, self.store.vocabulary.pad)
        queries = query_rows(sentences, self.lengths.query, self.store.vocabulary)
        masked &= ~np.isin(queries.ids, self.store.vocabulary.special)
        queries.ids[masked] = self.store.vocabulary.mask
        return InverseClozeBatch(queries, passages, rows)


def _remove(passages: Rows, index: int, start: int, stop: int, pad: int) -> None:
    """Removes body tokens start .. stop from a passage row and shifts the rest left."""
    ids, mask, segments = (part[index] for part in passages)
    used = int(mask.sum())
    body = int(np.argmax(segments)) if segments.any() else used
    start, stop = min(body + start, used - 1), min(body + stop, used - 1)
    removed = stop - start
    ids[start : used - removed] = ids[stop:used].copy()
    ids[used - removed : used] = pad
    mask[used - removed : used] = False
    segments[used - removed : used] = 0
