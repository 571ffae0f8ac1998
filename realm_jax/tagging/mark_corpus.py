"""Marks the salient spans of a corpus, shard by shard, and resumes after a crash.

Finished shards are kept in `OUT.shards/`. When all shards are finished, they are merged into the
span store `OUT` and deleted.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from realm_jax.corpus.dedup import source_passages
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError, MismatchError
from realm_jax.storage import commit, integrity
from realm_jax.storage.appendable import FolderWriter
from realm_jax.storage.layout import MANIFEST
from realm_jax.tagging.marker import SpanMarker, Spans

KIND = "span_shard"
BATCH_PASSAGES = 512  # passages per call of the marker; a stop request is checked between calls
_FILES = ("spans.npy", "counts.npy")


class Interrupted(Exception):
    """A stop was requested; the finished shards are kept."""


def annotate_corpus(
    store: PassageStore,
    out: Path,
    marker: SpanMarker,
    *,
    knowledge: PassageStore | None = None,
    shard: int = 4096,
    done: Callable[[int], None] = lambda passages: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Marks every passage and writes the span store `out`; a repeated call resumes.

    Args:
      store: the corpus X.
      out: a new folder. Finished shards are kept in `OUT.shards` in the same parent folder.
      marker: marks the spans of passages.
      knowledge: the knowledge corpus Z of the run that will use X; X itself by default.
      shard: passages per shard; a resumed call repeats at most one shard.
      done: called with the number of finished passages after each batch.
      stopped: polled between batches; if it returns True, the call stops.

    Returns:
      `passages`, `spans`, `with_spans` (passages that have any), `resumed` (passages marked by an
      earlier call), and `seconds` and `passages_per_second` of this call.

    Raises:
      Interrupted: `stopped` returned True.
      InputError: `out` exists and is complete.
      MismatchError: the shards belong to another corpus, marker or shard size.
    """
    if (out / MANIFEST).exists():
        raise InputError(
            "the spans already exist",
            where=out,
            fix="choose another --out, or delete this folder; finished folders are immutable",
        )
    began = time.monotonic()
    folder = out.with_name(f"{out.name}.shards")
    facts = {"corpus_hash": store.corpus_hash, "by": marker.identity}
    shards = {
        folder / f"{first:08d}": range(first, min(first + shard, len(store)))
        for first in range(0, len(store), shard)
    }
    missing = {
        path: passages
        for path, passages in shards.items()
        if not _is_finished(path, {**facts, "first": passages.start, "stop": passages.stop})
    }
    resumed = len(store) - sum(map(len, missing.values()))
    finished = resumed
    done(finished)
    for path, passages in missing.items():
        for marked in _write(path, store, passages, marker, facts, stopped):
            finished += marked
            done(finished)
    spans = (marked for path in shards for marked in _read(path))
    knowledge = store if knowledge is None else knowledge
    source = source_passages(store, knowledge)
    made = SpanStore.write(out, store, spans, source=source, knowledge=knowledge)
    shutil.rmtree(folder)
    seconds = time.monotonic() - began
    return {
        "passages": len(store),
        "spans": made.manifest["spans"],
        "with_spans": len(made.rows),
        "resumed": resumed,
        "seconds": seconds,
        "passages_per_second": (len(store) - resumed) / seconds,
    }


def _write(
    path: Path,
    store: PassageStore,
    passages: range,
    marker: SpanMarker,
    facts: dict[str, str],
    stopped: Callable[[], bool],
) -> Iterator[int]:
    """Marks one shard; yields the number of passages of each batch."""
    with FolderWriter(path, KIND, _FILES) as folder:
        flat = folder.array("spans.npy", np.int32, width=2)
        counts = folder.array("counts.npy", np.int32)
        for first in range(passages.start, passages.stop, BATCH_PASSAGES):
            if stopped():
                raise Interrupted
            some = range(first, min(first + BATCH_PASSAGES, passages.stop))
            for spans in marker.spans(store, some):
                flat.append(np.array(spans, np.int32).reshape(-1, 2))
                counts.append(np.array([len(spans)], np.int32))
            yield len(some)
        folder.commit(**facts, first=passages.start, stop=passages.stop)


def _is_finished(path: Path, expected: dict[str, Any]) -> bool:
    """Whether the shard is complete and intact; a damaged shard is deleted and marked again."""
    if not (path / MANIFEST).exists():
        return False
    folder = epath.Path(path)
    manifest = None if integrity.verify(folder) else commit.read_manifest(folder)
    if manifest is None:
        shutil.rmtree(path)
        return False
    found = {key: manifest.get(key) for key in expected}
    if found != expected:
        raise MismatchError(
            "the shards of an unfinished run do not belong to this one",
            where=path,
            expected=expected,
            found=found,
            fix=f"rerun the command that wrote them, or delete {path.parent}",
        )
    return True


def _read(path: Path) -> Iterator[Spans]:
    flat = np.load(path / "spans.npy", mmap_mode="r")
    bounds = np.append(0, np.load(path / "counts.npy").cumsum()).tolist()
    for start, stop in pairwise(bounds):
        yield [(int(a), int(b)) for a, b in flat[start:stop]]
