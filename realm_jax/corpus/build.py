"""Raw files to a passage store: `realm corpus build`."""

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax.corpus.readers import read
from realm_jax.corpus.split import PASSAGE_PIECES
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import Fingerprint, write_store
from realm_jax.corpus.worker_pool import batches
from realm_jax.storage.files import digest


def build(
    format: str,
    input: str,
    out: str | Path,
    vocabulary: str | Path,
    *,
    passage_pieces: int = PASSAGE_PIECES,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Reads `input`, cuts it into passages and writes a passage store to `out`.

    Args:
      format: see `readers.read`.
      input: see `readers.read`.
      out: folder of the store; one left unfinished is gone on with after its last finished shard.
      vocabulary: a BERT vocab.txt.
      passage_pieces: budget of a passage in word pieces, special pieces included.
      workers: processes; the store is the same for every number.
      progress: called as `progress(documents, passages)`.

    Returns:
      `documents`, `passages`, `pieces`, `skipped` (by reason), `corpus_hash`, `seconds`,
      `passages_per_second` (of this run, without the `resumed` passages of an earlier one) and
      `peak_memory_bytes` (this process and, for an upper bound, the largest of the workers times
      their number).

    Raises:
      InputError: see `readers.read` and `writer.write_store`.
    """
    began = time.monotonic()
    skipped: Counter[str] = Counter()
    summary = write_store(
        out,
        read(format, input, skipped),
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
) -> bool:
    """Whether a finished store is what `build` would make; reads all documents of `input`.

    A `vocabulary` of None is the one that the store has.
    """
    if (
        vocabulary is not None
        and digest(epath.Path(vocabulary))["sha256"] != store.manifest["vocabulary"]
    ):
        return False
    if passage_pieces != store.manifest["passage_pieces"]:
        return False
    source, checksum = Fingerprint(), None
    for _ in source.of(batches(read(format, input, Counter()))):
        checksum = source.next()
    return checksum == store.manifest["source"]


def peak_memory(workers: int) -> int:
    """Most bytes this process and its `workers` have held so far; an upper bound."""
    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if workers > 1 else 0
    return unit * (own + workers * largest)
