"""The searcher of a refresh: trained on the new vectors, or the last one with re-encoded rows.

Partition centres and codebooks change little from one snapshot to the next. If recall holds,
keeping them saves most of the build time (benchmarks/RESULTS.md); if it falls, they are trained
again.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex, open_index
from realm_jax.errors import DamageError, MismatchError
from realm_jax.index_builder.recall import PROBE_HITS, Probes, passage_probes, widen_to_floor
from realm_jax.retrieval.searcher import (
    LocalSearcher,
    ReencodableSearcher,
    Searcher,
    available_kind,
    build_searcher,
)
from realm_jax.storage import commit
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuiltIndex:
    """A searcher over new vectors, and how it was built.

    Attributes:
      searcher: widened until it reaches the recall floor.
      recall: with queries of the kind that will be asked; the floor applies to it.
      recall_passages: with indexed passages as queries.
      trained: fields for the manifest. `trained_step`: the snapshot whose vectors trained the
        centres and codebooks; `trained_recall`: the recall on those vectors before widening.
      seconds: `seconds_build` and `seconds_check`.
    """

    searcher: LocalSearcher
    recall: float
    recall_passages: float
    trained: dict[str, Any]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Trained:
    """The searcher of an earlier snapshot, and the fields `trained` of its `BuiltIndex`."""

    searcher: Searcher
    fields: dict[str, Any]


@dataclass(frozen=True)
class FittedSearcher:
    """A searcher over new vectors; see `BuiltIndex`. `built` is when it was, on the clock."""

    searcher: LocalSearcher
    recall: float
    trained: dict[str, Any]
    began: float
    built: float


def build_index(
    run: RunDir,
    step: int,
    config: ConfigDict,
    corpus_hash: str,
    vectors: Float32[np.ndarray, "N E"],
    queries: Float32[np.ndarray, "B E"],
) -> BuiltIndex:
    """Builds the searcher of a snapshot.

    Args:
      run: the run folder, with earlier indexes.
      step: of the snapshot.
      config: `search` and `builder` are used.
      corpus_hash: of the knowledge corpus.
      vectors: of all passages, which may be memory-mapped.
      queries: of the kind that will be asked, to measure recall.
    """

    def last() -> Trained | None:
        index = _newest_index(run, config, corpus_hash)
        return None if index is None else Trained(index.searcher, _trained_fields(index))

    fitted = fit(step, config, vectors, Probes(vectors, queries), last)
    with_passages = passage_probes(vectors, config.builder.probes).recall(fitted.searcher)
    seconds = {
        "seconds_build": fitted.built - fitted.began,
        "seconds_check": time.monotonic() - fitted.built,
    }
    return BuiltIndex(fitted.searcher, fitted.recall, with_passages, fitted.trained, seconds)


def fit(
    step: int,
    config: ConfigDict,
    vectors: Float32[np.ndarray, "N E"],
    probes: Probes,
    last: Callable[[], Trained | None],
) -> FittedSearcher:
    """A searcher over `vectors`: that of `last` if it may be re-encoded, else a new one.

    Args:
      step: see `build_index`.
      config: see `build_index`.
      vectors: see `build_index`.
      probes: measure its recall.
      last: opens the searcher of the last index; called only if `builder.reencode` is set.
    """
    if config.builder.reencode:
        # The last index is freed when this call returns, before a new one takes memory.
        reencoded = _reencode(last(), config, vectors, probes)
        if reencoded is not None:
            return reencoded
    began = time.monotonic()
    searcher = build_searcher(config.search.kind, vectors, config.search, config.seed)
    built = time.monotonic()
    first = probes.recall(searcher)
    measured = widen_to_floor(searcher, probes, config.builder.recall_floor, first)
    trained = {"trained_step": step, "trained_recall": first}
    return FittedSearcher(searcher, measured, trained, began, built)


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
    last: Trained | None,
    config: ConfigDict,
    vectors: Float32[np.ndarray, "N E"],
    probes: Probes,
) -> FittedSearcher | None:
    """Puts new vectors into the last index.

    Returns:
      None if the partitions have to be trained again: kind or plan differ, recall has fallen, or it
      is below the floor although the vectors can be separated better than those that trained them.
    """
    if last is None:
        return None
    searcher, trained = last.searcher, last.fields
    if (
        not isinstance(searcher, ReencodableSearcher)
        or searcher.kind != available_kind(config.search.kind)
        or searcher.size != len(vectors)
        or not trained
        or not searcher.replan(config.search)
    ):
        return None
    began = time.monotonic()
    searcher.reencode(vectors)
    built = time.monotonic()
    floor, first = config.builder.recall_floor, probes.recall(searcher)
    gain, loss = first - trained["trained_recall"], config.builder.reencode_loss
    outdated = gain < -loss or (first < floor and gain > loss)
    measured = first if outdated else widen_to_floor(searcher, probes, floor, first)
    if outdated or measured < floor:
        log.info(
            "recall@%d with the partitions of step %d is %.3f; on the vectors that trained them it "
            "was %.3f: training them again",
            PROBE_HITS,
            trained["trained_step"],
            measured,
            trained["trained_recall"],
        )
        return None
    return FittedSearcher(searcher, measured, trained, began, built)


def _trained_fields(index: PublishedIndex) -> dict[str, Any]:
    keys = ("trained_step", "trained_recall")
    return {key: index.manifest[key] for key in keys if key in index.manifest}
