"""The searcher of a refresh: built anew, or the last one with all of its rows encoded again.

Centres and codebooks move little from one snapshot to the next. Where recall holds, keeping them
saves most of a build (benchmarks/RESULTS.md); where it falls, they are learnt anew.
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
from realm_jax.index_builder.check import PROBE_HITS, recall, widened
from realm_jax.retrieval.partition_plan import make_plan
from realm_jax.retrieval.searcher import BuiltSearcher, Reencodes, build_searcher
from realm_jax.storage import commit
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name

log = logging.getLogger(__name__)
_SAME = ("size", "dims", "leaves", "rescore", "dims_per_code", "soar")  # of two plans


@dataclass(frozen=True)
class Built:
    """A searcher over new vectors.

    Attributes:
      searcher: as wide as the recall floor asks for.
      recall: of it, see `check.recall`.
      trained: for the manifest: `trained_step`, whose vectors partitions and codes were learnt
        from, and `trained_recall`, what it reached on them.
      seconds: `seconds_build` and `seconds_check`.
    """

    searcher: BuiltSearcher
    recall: float
    trained: dict[str, Any]
    seconds: dict[str, float]


def built(
    run: RunDir,
    step: int,
    config: ConfigDict,
    corpus_hash: str,
    vectors: Float32[np.ndarray, "N E"],
) -> Built:
    """The searcher of `step` over `vectors`, as `config.search` and `config.builder` say."""
    again = None
    if config.builder.reencode:  # the last index is let go of before another one is built
        again = _encoded_again(_last(run, config, corpus_hash), config, vectors)
    if again is not None:
        return again
    began = time.monotonic()
    searcher = build_searcher(config.search.kind, vectors, config.search, config.seed)
    ready = time.monotonic()
    measured = widened(searcher, vectors, config.builder)
    trained = {"trained_step": step, "trained_recall": measured}
    return Built(searcher, measured, trained, _seconds(began, ready))


def _last(run: RunDir, config: ConfigDict, corpus_hash: str) -> PublishedIndex | None:
    """The newest published index, if it is sound and of this corpus and width."""
    newest = commit.latest(run.published_index)
    if newest is None:
        return None
    expect = {"corpus_hash": corpus_hash, "dims": config.model.embedding}
    try:
        return open_index(run.published_index / step_name(newest), expect)
    except (DamageError, MismatchError, NotPublishedError) as error:
        log.warning("the index of step %d is not built upon:\n%s", newest, error)
        return None


def _encoded_again(
    last: PublishedIndex | None, config: ConfigDict, vectors: Float32[np.ndarray, "N E"]
) -> Built | None:
    """The last index over other vectors; None without one that is of this sort and fits them."""
    if last is None:
        return None
    searcher, trained = last.searcher, _trained(last)
    size, dims = vectors.shape
    plan = make_plan(size, dims, config.search)
    if not isinstance(searcher, Reencodes) or searcher.kind != config.search.kind or not trained:
        return None
    if not plan["reorder"] or any(searcher.plan[key] != plan[key] for key in _SAME):
        return None
    began = time.monotonic()
    searcher.reencode(vectors)
    ready = time.monotonic()
    measured = recall(searcher, vectors, config.builder)
    least = max(
        config.builder.recall_floor, trained["trained_recall"] - config.builder.reencode_loss
    )
    if measured < least:
        log.info(
            "recall@%d of the partitions of step %d is %.3f, below %.3f: they are learnt anew",
            PROBE_HITS,
            trained["trained_step"],
            measured,
            least,
        )
        return None
    return Built(searcher, measured, trained, _seconds(began, ready))


def _seconds(began: float, ready: float) -> dict[str, float]:
    return {"seconds_build": ready - began, "seconds_check": time.monotonic() - ready}


def _trained(index: PublishedIndex) -> dict[str, Any]:
    kept = ("trained_step", "trained_recall")
    return {key: index.manifest[key] for key in kept if key in index.manifest}
