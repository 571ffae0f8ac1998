"""What both jobs note of an index, so that it can be shown later that it was used as published.

The builder writes `logs/indexes.jsonl` once an index is published, the trainer `logs/swaps.jsonl`
when it begins to search one. Both name the manifest by its checksum, and the candidates that the
index gave to the same probe queries; `support.history` proves over the two.
"""

import hashlib
import logging
import time
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from realm_jax.artifacts.published_index import PublishedIndex, open_index
from realm_jax.errors import DamageError
from realm_jax.retrieval.searcher import Searcher
from realm_jax.storage import commit, files
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import Log, read_log

PROBES, HITS = 100, 10

log = logging.getLogger(__name__)


def candidates(
    searcher: Searcher, rows: Int64[np.ndarray, "N"], vectors: Float[np.ndarray, "N E"]
) -> str:
    """SHA-256 of the passages found for 100 passages as queries, evenly spread over the index."""
    chosen = np.linspace(0, len(vectors) - 1, min(PROBES, len(vectors))).astype(np.int64)
    # The published index has float16 vectors, the builder float32: both give the same queries.
    queries = vectors[chosen].astype(np.float16).astype(np.float32)
    found, _ = searcher.search(queries, min(HITS, len(vectors)))
    return hashlib.sha256(np.ascontiguousarray(rows[found], np.int64).tobytes()).hexdigest()


def candidates_of(index: PublishedIndex) -> str:
    """`candidates` of an opened index."""
    return candidates(index.searcher, index.rows, index.vectors)


def note_swap(run: RunDir, step: int, index: PublishedIndex, found: str) -> None:
    """The trainer searches `index` from `step` on; `found` is `candidates_of` it."""
    Log(run.swaps).append({"step": step, **_record(index.manifest, found)})


def note_index(
    run: RunDir,
    step: int,
    searcher: Searcher,
    rows: Int64[np.ndarray, "N"],
    vectors: Float[np.ndarray, "N E"],
) -> None:
    """The builder published the index of `step`, which it made of these."""
    manifest = commit.read_manifest(run.published_index / step_name(step))
    if manifest is not None and step not in _noted(run):
        record = _record(manifest, candidates(searcher, rows, vectors))
        Log(run.indexes).append({"step": step, **record})


def note_missing(run: RunDir) -> None:
    """Notes the indexes that an earlier life of the builder published and had no time to note."""
    for step in sorted(set(commit.steps(run.published_index)) - _noted(run)):
        try:
            index = open_index(run.published_index / step_name(step))
        except (DamageError, NotPublishedError) as error:
            log.warning("the index of step %d cannot be read:\n%s", step, error)
            continue
        record = _record(index.manifest, candidates_of(index))
        Log(run.indexes).append({"step": step, **record})


def _noted(run: RunDir) -> set[int]:
    return {record["index_step"] for record in read_log(run.indexes)}


def _record(manifest: dict[str, Any], found: str) -> dict[str, Any]:
    return {
        "index_step": manifest["step"],
        "snapshot_step": manifest.get("snapshot_step"),
        "checksum": files.checksum(manifest),
        "candidates": found,
        "time": time.time(),
    }
