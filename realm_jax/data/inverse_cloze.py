"""Inverse cloze pairs for pre-training the embedder (ORQA section 5, REALM section 3.4)."""

import logging
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data import sampling
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.rows import Rows, query_rows
from realm_jax.data.titled_queries import TitledQueries

MAX_DRAWS = 16  # passages drawn for a pair before one with a single sentence is kept as it is

log = logging.getLogger(__name__)


class InverseClozeBatch(NamedTuple):
    """Sentences and their passages; most passages do not contain the sentence."""

    queries: Rows
    passages: Rows
    ids: Int64[Any, "B"]


class InverseClozeSource:
    """Draws a passage and uses one of its sentences as the query.

    With probability `stages.ict.removal_share` the sentence is removed from the passage. If removal
    is drawn for a passage with one sentence, the pair is dropped and another passage is drawn. The
    released code of ORQA drops such pairs too (`ict_dataset.py`) and takes the next passage of its
    stream. Here the random numbers belong to the row of the batch, so batch n stays a function of
    (seed, n). After `MAX_DRAWS` passages the last pair is kept without removal; its query then has
    the same text as its passage.

    A share `stages.ict.mask_share` of the query's tokens is replaced by [MASK], because the queries
    of REALM contain [MASK] too.
    """

    def __init__(self, store: PassageStore, config: ConfigDict):
        self.store, self.lengths = store, config.lengths
        self.rows = EmbedderRows(config, store.vocabulary)
        self.removal, self.mask_share = (
            config.stages.ict.removal_share,
            config.stages.ict.mask_share,
        )
        self.seed = config.seed
        self._titles = TitledQueries(store, config.stages.ict.title_share, config.seed)
        self._live = store.live_ids()
        self._warned = False

    def batch(
        self, step: int, size: int, batch_rows: Int64[np.ndarray, "R"] | None = None
    ) -> InverseClozeBatch:
        """The pairs of one training step; only those at `batch_rows` if it is given."""
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        drawn = sampling.example_ids(self.seed, step, size, len(self._live))[batch_rows]
        first = self._live[drawn]
        masked = np.empty((len(first), self.lengths.query), bool)
        pairs = []
        for index, row in enumerate(first.tolist()):
            rng = sampling.generator(self.seed, "ict", step, int(batch_rows[index]))
            masked[index] = rng.random(self.lengths.query) < self.mask_share
            pairs.append(self._pair(rng, row))
        rows = np.array([pair.row for pair in pairs], np.int64)
        passages = self.rows.passages(self.store, rows, self.lengths.passage)
        bodies = self.rows.body_starts(self.store, rows, self.lengths.passage)
        for index, pair in enumerate(pairs):
            if pair.removed:
                body = int(bodies[index])
                start, stop = body + pair.start, body + pair.stop
                _remove(passages, index, start, stop, self.store.vocabulary.pad)
        sentences = [self.store.body_ids(pair.row)[pair.start : pair.stop] for pair in pairs]
        sentences = self._titles.before(sentences, rows, self._titles.chosen(step, batch_rows))
        queries = query_rows(sentences, self.lengths.query, self.store.vocabulary)
        masked &= ~np.isin(queries.ids, self.store.vocabulary.special)
        queries.ids[masked] = self.store.vocabulary.mask
        return InverseClozeBatch(self.rows.queries(queries), passages, rows)

    def _pair(self, rng: np.random.Generator, row: int) -> "_Pair":
        """Draws sentence and removal for passage `row`, and other passages if it is dropped."""
        for draws in range(1, MAX_DRAWS + 1):
            bounds = self.store.sentences(row)
            sentence = int(rng.integers(len(bounds) - 1))
            start, stop = bounds[sentence : sentence + 2].tolist()
            removed = bool(rng.random() < self.removal)
            if not removed or len(bounds) > 2:
                return _Pair(row, start, stop, removed)
            if draws < MAX_DRAWS:
                row = int(self._live[rng.integers(len(self._live))])
        self._warn_once()
        return _Pair(row, start, stop, removed=False)

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "inverse cloze task: %d drawn passages in a row have one sentence each, so the "
                "query of such a pair has the same text as its passage; build %s with longer "
                "passages, or set stages.ict.steps=0",
                MAX_DRAWS,
                self.store.path,
            )


class _Pair(NamedTuple):
    """Passage id, token bounds of the query's sentence in its body, and whether to remove it."""

    row: int
    start: int
    stop: int
    removed: bool


def _remove(passages: Rows, index: int, start: int, stop: int, pad: int) -> None:
    """Removes columns start .. stop, except [SEP], from a row and shifts the rest left."""
    ids, mask, segments = (part[index] for part in passages)
    used = int(mask.sum())
    start, stop = min(start, used - 1), min(stop, used - 1)
    removed = stop - start
    ids[start : used - removed] = ids[stop:used].copy()
    ids[used - removed : used] = pad
    mask[used - removed : used] = False
    segments[used - removed : used] = 0
