"""How good an index is before it may be published: recall against exact search on probe queries."""

import logging

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.data import sampling
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import BuiltSearcher, Searcher

PROBE_HITS = 10  # recall is measured at this many

log = logging.getLogger(__name__)


def widened(
    searcher: BuiltSearcher, vectors: Float32[np.ndarray, "N E"], builder: ConfigDict
) -> float:
    """`recall`, once the searcher looks wide enough for the floor, or at everything.

    Vectors of an embedder that has learnt little are nearly one, and hard to tell apart in codes.
    """
    measured = first = recall(searcher, vectors, builder)
    times = 1
    while measured < builder.recall_floor and searcher.widen():
        measured = recall(searcher, vectors, builder)
        times *= 4
    if times > 1:
        log.warning(
            "recall@%d %.3f is below %s (builder.recall_floor): this index is searched %d times as "
            "wide, which costs time: %.3f",
            PROBE_HITS,
            first,
            builder.recall_floor,
            times,
            measured,
        )
    return measured


def recall(searcher: Searcher, vectors: Float32[np.ndarray, "N E"], builder: ConfigDict) -> float:
    """Share of hits that belong to the exact top 10, over fixed probe passages as queries.

    What float32 cannot tell from the tenth best counts as well: the vectors of an embedder that
    has learnt little are nearly one, and then exact search itself finds no better.
    """
    k = min(PROBE_HITS, len(vectors))
    rng = sampling.generator(0, "probes")
    probes = vectors[rng.choice(len(vectors), min(builder.probes, len(vectors)), replace=False)]
    exact, found = (s.search(probes, k)[0] for s in (ExactSearcher(vectors), searcher))
    best = vectors[exact].astype(np.float64)
    lengths = np.linalg.norm(best, axis=2).max(1) * np.linalg.norm(probes, axis=1)
    rounding = np.finfo(np.float32).eps * vectors.shape[1] ** 0.5 * lengths
    tenth = np.einsum("bke,be->bk", best, probes.astype(np.float64)).min(1)
    scores = np.einsum("bke,be->bk", vectors[found].astype(np.float64), probes.astype(np.float64))
    return float(np.mean(scores >= (tenth - rounding)[:, None]))
