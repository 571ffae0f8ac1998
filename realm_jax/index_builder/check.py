"""How good an index is before it may be published: recall against exact search on probe queries."""

import logging

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.data import order
from realm_jax.search.exact_searcher import ExactSearcher
from realm_jax.search.searcher import BuiltSearcher, Searcher

PROBE_HITS = 10  # recall is measured at this many

log = logging.getLogger(__name__)


def widened(
    searcher: BuiltSearcher, vectors: Float32[np.ndarray, "N E"], builder: ConfigDict
) -> float:
    """`recall`, once the searcher looks wide enough for the floor, or at everything.

    Vectors of an embedder that has learnt little are nearly one, and hard to tell apart in codes.
    """
    measured = recall(searcher, vectors, builder)
    while measured < builder.recall_floor and searcher.widen():
        before, measured = measured, recall(searcher, vectors, builder)
        log.warning(
            "recall@%d %.3f is below %s (builder.recall_floor): this index is searched four times "
            "as wide, which costs time: %.3f",
            PROBE_HITS,
            before,
            builder.recall_floor,
            measured,
        )
    return measured


def recall(searcher: Searcher, vectors: Float32[np.ndarray, "N E"], builder: ConfigDict) -> float:
    """Share of the exact top 10 that the searcher finds, over fixed probe passages as queries."""
    k = min(PROBE_HITS, len(vectors))
    rng = order.generator(0, "probes")
    probes = vectors[rng.choice(len(vectors), min(builder.probes, len(vectors)), replace=False)]
    exact, _ = ExactSearcher(vectors).search(probes, k)
    found, _ = searcher.search(probes, k)
    same = [len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]
    return float(np.sum(same)) / exact.size
