"""Recall of a new index against exact search, measured before it may be published."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from realm_jax.data import sampling
from realm_jax.errors import RealmError
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import LocalSearcher, Searcher

PROBE_HITS = 10  # k of the measured recall@k

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProbeHits:
    """The hits of probe queries, and those of exact search.

    Attributes:
      scores: that the searcher gave its hits.
      found: inner products of these hits.
      exact: inner products of the exact hits.
      rounding: error of an inner product in float32, by query.
    """

    scores: Float32[np.ndarray, "B K"]
    found: Float64[np.ndarray, "B K"]
    exact: Float64[np.ndarray, "B K"]
    rounding: Float64[np.ndarray, "B"]

    def recall(self) -> float:
        """Share of the hits whose inner product is at least that of the last exact hit, 0 to 1."""
        least = (self.exact.min(axis=1) - self.rounding)[:, None]
        return float(np.mean(self.found >= least))


def merged(parts: Sequence[ProbeHits]) -> ProbeHits:
    """The hits in an index of segments, from the hits in each of them."""
    scores, found, exact = (
        np.concatenate([getattr(part, name) for part in parts], axis=1)
        for name in ("scores", "found", "exact")
    )
    best = np.argsort(-scores, axis=1, kind="stable")[:, :PROBE_HITS]
    return ProbeHits(
        np.take_along_axis(scores, best, 1),
        np.take_along_axis(found, best, 1),
        -np.sort(-exact, axis=1)[:, :PROBE_HITS],
        np.max([part.rounding for part in parts], axis=0),
    )


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
        self._rounding = np.finfo(np.float32).eps * vectors.shape[1] ** 0.5 * norms
        self._exact = np.einsum("bke,be->bk", best, queries.astype(np.float64))

    def hits(self, searcher: Searcher) -> ProbeHits:
        """The hits of `searcher`, whose rows are those of the vectors."""
        rows, scores = searcher.search(self._queries, self._k)
        hits, queries = self._vectors[rows].astype(np.float64), self._queries.astype(np.float64)
        found = np.einsum("bke,be->bk", hits, queries)
        return ProbeHits(scores, found, self._exact, self._rounding)

    def recall(self, searcher: Searcher) -> float:
        """Share of the hits of `searcher` that count, 0 to 1."""
        return self.hits(searcher).recall()


def passage_probes(vectors: Float32[np.ndarray, "N E"], count: int) -> Probes:
    """`count` passages as queries, the same ones each time.

    Each query is a row of the index itself, so an approximate index finds its hits more often than
    those of masked sentences.
    """
    return Probes(vectors, vectors[passage_rows(len(vectors), count)])


def passage_rows(size: int, count: int) -> Int64[np.ndarray, "B"]:
    """The rows of an index of `size` rows that are queries: at most `count`."""
    return sampling.generator(0, "probes").choice(size, min(count, size), replace=False)


def require_floor(recall: float, floor: float, where: str) -> None:
    """Raises a RealmError if the recall of an index is below `builder.recall_floor`."""
    if recall < floor:
        raise RealmError(
            f"recall@{PROBE_HITS} of the new index is below the floor; it is not published",
            where=where,
            expected=f"at least {floor} (config.builder.recall_floor)",
            found=recall,
            fix="start `realm run` or `realm train` again with --config.search.rescore=float32 "
            "(search.kind=mesh: --config.search.dtype=float32) or a lower "
            "--config.builder.recall_floor; embedded shards are kept",
        )


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
