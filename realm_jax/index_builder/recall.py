"""Recall of a new index against exact search, measured before it may be published."""

import logging

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.data import sampling
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import LocalSearcher, Searcher

PROBE_HITS = 10  # k of the measured recall@k

log = logging.getLogger(__name__)


def widen_to_floor(
    searcher: LocalSearcher, vectors: Float32[np.ndarray, "N E"], builder: ConfigDict
) -> float:
    """Widens the search until its recall reaches the floor or it scans everything.

    The vectors of an embedder at the start of training are nearly equal, so quantised scores hardly
    separate them and recall is low.

    Args:
      searcher: over `vectors`; modified in place.
      vectors: [N, E].
      builder: `config.builder`.

    Returns:
      The recall that was reached; see `probe_recall`.
    """
    measured = first = probe_recall(searcher, vectors, builder)
    factor = 1
    while measured < builder.recall_floor and searcher.widen():
        measured = probe_recall(searcher, vectors, builder)
        factor *= 4
    if factor > 1:
        log.warning(
            "recall@%d %.3f is below builder.recall_floor=%s: the index is searched %d times as "
            "wide, which makes each search slower; recall@%d is now %.3f",
            PROBE_HITS,
            first,
            builder.recall_floor,
            factor,
            PROBE_HITS,
            measured,
        )
    return measured


def probe_recall(
    searcher: Searcher, vectors: Float32[np.ndarray, "N E"], builder: ConfigDict
) -> float:
    """Measures recall@10 with `builder.probes` passages as queries, the same ones each time.

    A hit counts if its score is at least that of the exact tenth hit, less the rounding error of
    float32. Without this tolerance, the nearly equal vectors of an untrained embedder would give
    exact search itself a low recall.

    Returns:
      Share of hits that count, 0 to 1.
    """
    k = min(PROBE_HITS, len(vectors))
    rng = sampling.generator(0, "probes")
    probes = vectors[rng.choice(len(vectors), min(builder.probes, len(vectors)), replace=False)]
    exact, found = (s.search(probes, k)[0] for s in (ExactSearcher(vectors), searcher))
    best = vectors[exact].astype(np.float64)
    norms = np.linalg.norm(best, axis=2).max(1) * np.linalg.norm(probes, axis=1)
    rounding = np.finfo(np.float32).eps * vectors.shape[1] ** 0.5 * norms
    tenth = np.einsum("bke,be->bk", best, probes.astype(np.float64)).min(1)
    scores = np.einsum("bke,be->bk", vectors[found].astype(np.float64), probes.astype(np.float64))
    return float(np.mean(scores >= (tenth - rounding)[:, None]))
