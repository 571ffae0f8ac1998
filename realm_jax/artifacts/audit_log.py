"""Logs of published and used indexes, from which an audit compares what both jobs saw.

The builder adds a line to `logs/indexes.jsonl` when it has published an index, the trainer to
`logs/swaps.jsonl` when it starts to search one. Both lines record the checksum of the manifest and
a hash of the candidates for the same probe queries. `support.history` in the tests compares them.
"""

import functools
import hashlib
import logging
import time
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int64

from realm_jax.artifacts.published_index import PublishedIndex, Vectors, open_index
from realm_jax.artifacts.required import mean_snapshot_step
from realm_jax.errors import DamageError
from realm_jax.retrieval.searcher import Searcher
from realm_jax.storage import commit, sealed
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import Log, last_record, read_log

PROBES, HITS = 100, 10

log = logging.getLogger(__name__)


def probe_hash(searcher: Searcher, rows: Int64[np.ndarray, "N"], vectors: Vectors) -> str:
    """SHA-256 of the ids of the top 10 passages for each of 100 probe queries.

    The queries are vectors of passages, evenly spaced over the index.
    """
    chosen = np.linspace(0, len(vectors) - 1, min(PROBES, len(vectors))).astype(np.int64)
    # The builder has float32 vectors, the published index float16: both give the same queries.
    queries = vectors[chosen].astype(np.float16).astype(np.float32)
    found, _ = searcher.search(queries, min(HITS, len(vectors)))
    return hashlib.sha256(np.ascontiguousarray(rows[found], np.int64).tobytes()).hexdigest()


def probe_hash_of(index: PublishedIndex) -> str:
    """`probe_hash` of an opened index."""
    return probe_hash(index.searcher, index.rows, index.vectors)


def log_swap(run: RunDir, step: int, index: PublishedIndex, found: str) -> None:
    """Adds a line to `logs/swaps.jsonl`: the trainer searches `index` from `step` on.

    `found` is `probe_hash_of(index)`.
    """
    _log(run.swaps).append({"step": step, **_record(index.manifest, found)})


@functools.cache
def _log(path: epath.Path) -> Log:
    """One writer per process, so that its records share the parts of an object store.

    A resumed run repeats the swaps of the log, so it must not lose any.
    """
    return Log(path, sync=True)


def log_index(
    run: RunDir,
    step: int,
    searcher: Searcher,
    rows: Int64[np.ndarray, "N"],
    vectors: Vectors,
) -> None:
    """Adds a line to `logs/indexes.jsonl` for the index of `step`, unless it is the last one."""
    manifest = commit.read_manifest(run.published_index / step_name(step))
    last = last_record(run.indexes)
    is_new = last is None or manifest is None or last.get("checksum") != sealed.checksum(manifest)
    if manifest is not None and is_new:
        record = _record(manifest, probe_hash(searcher, rows, vectors))
        _log(run.indexes).append({"step": step, **record})


def log_missing_indexes(run: RunDir) -> None:
    """Adds the lines of indexes that a killed builder published but did not log.

    Reads the whole log; a builder calls it once, when it starts.
    """
    logged = {record["index_step"] for record in read_log(run.indexes, "index_step")}
    for step in sorted(set(commit.steps(run.published_index)) - logged):
        try:
            index = open_index(run.published_index / step_name(step))
        except (DamageError, NotPublishedError) as error:
            log.warning("the index of step %d cannot be read:\n%s", step, error)
            continue
        record = _record(index.manifest, probe_hash_of(index))
        _log(run.indexes).append({"step": step, **record})


def _record(manifest: dict[str, Any], found: str) -> dict[str, Any]:
    return {
        "index_step": manifest["step"],
        "snapshot_step": manifest.get("snapshot_step"),
        "mean_snapshot_step": mean_snapshot_step(manifest),
        "corpus_hash": manifest.get("corpus_hash"),
        "checksum": sealed.checksum(manifest),
        "candidates": found,
        "time": time.time(),
    }
