"""Recall of a new index against exact search, measured before it may be published."""

import logging

import numpy as np
from jaxtyping import Float32

from realm_jax.data import sampling
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import LocalSearcher, Searcher

PROBE_HITS = 10  # k of the measured recall@k

log = logging.getLogger(__name__)


class Probes:
    """Queries whose exact hits are known, to measure the recall@10 of searchers.

    A hit counts if its score is at least that of the exact tenth hit, less the rounding error of
    float32. Without this tolerance, the nearly equal vectors of an untrained embedder would give
    exact search itself a low recall.

    Args:
      vectors: [N, E], of all rows of the index; may be memory-mapped.
      queries: [B, E], at least one.
    """

    def __init__(self, vectors: Float32[np.ndarray, "N E"], queries: Float32[np.ndarray, "B E"]):
        self._vectors, self._queries = vectors, queries
        self._k = min(PROBE_HITS, len(vectors))
        exact, _ = ExactSearcher(vectors).search(queries, self._k)
        best = vectors[exact].astype(np.float64)
        norms = np.linalg.norm(best, axis=2).max(1) * np.linalg.norm(queries, axis=1)
        rounding = np.finfo(np.float32).eps * vectors.shape[1] ** 0.5 * norms
        tenth = np.einsum("bke,be->bk", best, queries.astype(np.float64)).min(1)
        self._least = (tenth - rounding)[:, None]

    def recall(self, searcher: Searcher) -> float:
        """Share of the hits of `searcher` that count, 0 to 1."""
        found, _ = searcher.search(self._queries, self._k)
        hits, queries = self._vectors[found].astype(np.float64), self._queries.astype(np.float64)
        return float(np.mean(np.einsum("bke,be->bk", hits, queries) >= self._least))


def passage_probes(vectors: Float32[np.ndarray, "N E"], count: int) -> Probes:
    """`count` passages as queries, the same ones each time.

    Each query is a row of the index itself, so an approximate index finds its hits more often than
    those of masked sentences.
    """
    rng = sampling.generator(0, "probes")
    chosen = rng.choice(len(vectors), min(count, len(vectors)), replace=False)
    return Probes(vectors, vectors[chosen])


def widen_to_floor(searcher: LocalSearcher, probes: Probes, floor: float, first: float) -> float:
    """Widens the search until its recall reaches the floor or it scans everything.

    The vectors of an embedder at the start of training are nearly equal, so quantised scores hardly
    separate them and recall is low.

    Args:
      searcher: modified in place.
      probes: queries.
      floor: `builder.recall_floor`.
      first: the recall of the searcher before it is widened.

    Returns:
      The recall that was reached.
    """
    measured, factor = first, 1
    while measured < floor and searcher.widen():
        measured = probes.recall(searcher)
        factor *= 4
    if factor > 1:
        log.warning(
            "recall@%d %.3f is below builder.recall_floor=%s: the index is searched %d times as "
            "wide, which makes each search slower; recall@%d is now %.3f",
            PROBE_HITS,
            first,
            floor,
            factor,
            PROBE_HITS,
            measured,
        )
    return measured
