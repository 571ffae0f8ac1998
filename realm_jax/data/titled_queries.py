"""Titles before queries of training, so that the embedder does not learn to ignore titles."""

import numpy as np
from jaxtyping import Bool, Int64

from realm_jax.corpus.store import PassageStore
from realm_jax.data import sampling


class TitledQueries:
    """Puts the title of its document before a share of the queries that the embedder reads.

    A sentence seldom repeats the title of its document. Trained on sentences alone, the embedder
    learns to ignore the titles of passages, and questions that name a title lose.

    Args:
      store: the corpus that the queries come from.
      share: of the queries, 0 to 1.
      seed: of the run.
    """

    def __init__(self, store: PassageStore, share: float, seed: int):
        self._store, self._share, self._seed = store, share, seed

    def chosen(self, step: int, batch_rows: Int64[np.ndarray, "R"]) -> Bool[np.ndarray, "R"]:
        """Which rows of batch `step` get a title: a function of (seed, step, row)."""
        drawn = (sampling.generator(self._seed, "title", step, row) for row in batch_rows.tolist())
        return np.array([self._share > 0 and rng.random() < self._share for rng in drawn], bool)

    def before(
        self,
        queries: list[np.ndarray],
        passages: Int64[np.ndarray, "R"],
        titled: Bool[np.ndarray, "R"],
    ) -> list[np.ndarray]:
        """Token ids of the queries; those that are `titled` follow the title of their passage."""
        starts, stops = self._store.title_bounds(passages)
        bounds = zip(queries, titled, starts, stops, strict=True)
        return [
            np.concatenate([self._store.flat[start:stop], query]) if with_title else query
            for query, with_title, start, stop in bounds
        ]
