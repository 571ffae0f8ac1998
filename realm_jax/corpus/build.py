"""`realm corpus build`: raw files to a corpus."""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from realm_jax.corpus.readers import read
from realm_jax.corpus.split import PASSAGE_PIECES
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import InputChecksum, write_store
from realm_jax.corpus.tally import Skipped
from realm_jax.corpus.worker_pool import batches
from realm_jax.text.wordpiece import WordPieces


def build(
    format: str,
    input: str,
    out: str | Path,
    vocabulary: str | Path,
    *,
    passage_pieces: int = PASSAGE_PIECES,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Reads documents, splits them into passages and writes a corpus to `out`.

    Args:
      format: see `readers.read`.
      input: see `readers.read`.
      out: folder of the corpus; an unfinished one is continued after its last finished shard.
      vocabulary: a BERT vocab.txt.
      passage_pieces: maximum word pieces of a passage, including [CLS] and [SEP].
      workers: number of processes; does not change the corpus.
      progress: called as `progress(documents, passages)`.
      how: `columns` and `encoding`, see `readers.read`.

    Returns:
      The counts of `StoreWriter.commit`, `resumed` (passages of an earlier, killed build),
      `seconds`, `passages_per_second` (without `resumed`) and `peak_memory_bytes` (see
      `peak_memory`).

    Raises:
      InputError: see `readers.read` and `store_writer.write_store`.
    """
    began = time.monotonic()
    skipped = Skipped()
    summary = write_store(
        out,
        read(format, input, skipped, **how),
        vocabulary,
        passage_pieces=passage_pieces,
        workers=workers,
        skipped=skipped,
        progress=progress,
    )
    seconds = time.monotonic() - began
    return {
        **summary,
        "seconds": seconds,
        "passages_per_second": (summary["passages"] - summary["resumed"]) / max(seconds, 1e-9),
        "peak_memory_bytes": peak_memory(workers),
    }


def was_built_from(
    store: PassageStore,
    format: str,
    input: str,
    vocabulary: str | Path | None,
    passage_pieces: int,
    **how: Any,
) -> bool:
    """Whether `build` with these arguments would give this store; reads all documents of `input`.

    If `vocabulary` is None, that of the store is assumed.
    """
    if vocabulary and WordPieces.load(vocabulary).sha256 != store.manifest.get("vocabulary"):
        return False
    if passage_pieces != store.manifest.get("passage_pieces"):
        return False
    source, checksum = InputChecksum(), None
    for _ in source.of(batches(read(format, input, Skipped(), **how))):
        checksum = source.next()
    return checksum == store.manifest.get("source")


def peak_memory(workers: int) -> int:
    """Upper bound of the peak memory in bytes: this process, plus the largest worker per worker."""
    unit = 1 if sys.platform == "darwin" else 1024
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if workers > 1 else 0
    return unit * (here + workers * largest)
