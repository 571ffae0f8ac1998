"""The searcher of a refresh: trained on the new vectors, or the last one with re-encoded rows.

Partition centres and codebooks change little from one snapshot to the next. If recall holds,
keeping them saves most of the build time (benchmarks/RESULTS.md); if it falls, they are trained
again.
"""

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex, open_index
from realm_jax.errors import DamageError, MismatchError
from realm_jax.index_builder.recall import PROBE_HITS, probe_recall, widen_to_floor
from realm_jax.retrieval.search_plan import make_plan
from realm_jax.retrieval.searcher import LocalSearcher, ReencodableSearcher, build_searcher
from realm_jax.storage import commit
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name

log = logging.getLogger(__name__)
# Keys that must be equal in two plans for their centres and codebooks to be interchangeable.
_TRAINED_BY = ("size", "dims", "leaves", "rescore", "dims_per_code", "soar")


@dataclass(frozen=True)
class BuiltIndex:
    """A searcher over new vectors, and how it was built.

    Attributes:
      searcher: widened until it reaches the recall floor.
      recall: its recall; see `probe_recall`.
      trained: fields for the manifest. `trained_step`: the snapshot whose vectors trained the
        centres and codebooks; `trained_recall`: the recall on those vectors.
      seconds: `seconds_build` and `seconds_check`.
    """

    searcher: LocalSearcher
    recall: float
    trained: dict[str, Any]
    seconds: dict[str, float]


def build_index(
    run: RunDir,
    step: int,
    config: ConfigDict,
    corpus_hash: str,
    vectors: Float32[np.ndarray, "N E"],
) -> BuiltIndex:
    """Builds the searcher of a snapshot.

    Args:
      run: the run folder, with earlier indexes.
      step: of the snapshot.
      config: `search` and `builder` are used.
      corpus_hash: of the knowledge corpus.
      vectors: of all passages, which may be memory-mapped.
    """
    if config.builder.reencode:
        # The last index is freed when this call returns, before a new one takes memory.
        reencoded = _reencode(_newest_index(run, config, corpus_hash), config, vectors)
        if reencoded is not None:
            return reencoded
    began = time.monotonic()
    searcher = build_searcher(config.search.kind, vectors, config.search, config.seed)
    built = time.monotonic()
    measured = widen_to_floor(searcher, vectors, config.builder)
    trained = {"trained_step": step, "trained_recall": measured}
    return BuiltIndex(searcher, measured, trained, _seconds(began, built))


def _newest_index(run: RunDir, config: ConfigDict, corpus_hash: str) -> PublishedIndex | None:
    """The newest published index; None if it is damaged or of another corpus or dimension."""
    newest = commit.latest(run.published_index)
    if newest is None:
        return None
    expected = {"corpus_hash": corpus_hash, "dims": config.model.embedding}
    try:
        return open_index(run.published_index / step_name(newest), expected)
    except (DamageError, MismatchError, NotPublishedError) as error:
        log.warning(
            "the index of step %d cannot be re-encoded; building a new one:\n%s", newest, error
        )
        return None


def _reencode(
    last: PublishedIndex | None, config: ConfigDict, vectors: Float32[np.ndarray, "N E"]
) -> BuiltIndex | None:
    """Puts new vectors into the last index; None if its kind or plan differs or recall falls."""
    if last is None:
        return None
    searcher, trained = last.searcher, _trained_fields(last)
    size, dims = vectors.shape
    plan = make_plan(size, dims, config.search)
    if (
        not isinstance(searcher, ReencodableSearcher)
        or searcher.kind != config.search.kind
        or not trained
    ):
        return None
    if not plan["reorder"] or any(searcher.plan[key] != plan[key] for key in _TRAINED_BY):
        return None
    began = time.monotonic()
    searcher.reencode(vectors)
    built = time.monotonic()
    measured = probe_recall(searcher, vectors, config.builder)
    least = max(
        config.builder.recall_floor, trained["trained_recall"] - config.builder.reencode_loss
    )
    if measured < least:
        log.info(
            "recall@%d with the partitions of step %d is %.3f, below %.3f: training them again",
            PROBE_HITS,
            trained["trained_step"],
            measured,
            least,
        )
        return None
    return BuiltIndex(searcher, measured, trained, _seconds(began, built))


def _seconds(began: float, built: float) -> dict[str, float]:
    return {"seconds_build": built - began, "seconds_check": time.monotonic() - built}


def _trained_fields(index: PublishedIndex) -> dict[str, Any]:
    keys = ("trained_step", "trained_recall")
    return {key: index.manifest[key] for key in keys if key in index.manifest}
