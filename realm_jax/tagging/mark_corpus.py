"""The offline job that marks a whole corpus, shard by shard: killed anywhere, it goes on there.

Finished shards lie beside the folder to make, in `OUT.shards/`, until all are there; then the span
store is written from them in one go, and they are deleted.
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
BATCH_PASSAGES = 512  # passages handed to the annotator together; between them it can be stopped
_FILES = ("spans.npy", "counts.npy")


class Interrupted(Exception):
    """It was asked to stop; the shards up to here are kept."""


def annotate_corpus(
    store: PassageStore,
    out: Path,
    annotator: SpanMarker,
    *,
    knowledge: PassageStore | None = None,
    shard: int = 4096,
    done: Callable[[int], None] = lambda passages: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Marks every passage and writes the span store `out`; run again, it goes on where it was.

    Args:
      store: the corpus X.
      out: a new folder; `OUT.shards` beside it holds what is finished of it.
      annotator: what marks a passage.
      knowledge: the corpus Z that X is text for; X itself by default.
      shard: passages between two points to go on from.
      done: is told how many passages are finished, again and again.
      stopped: asked between batches whether to stop.

    Returns:
      `passages`, `spans`, of which `resumed` passages were marked by an earlier run, `seconds` and
      `passages_per_second` of this one.

    Raises:
      Interrupted: `stopped` said so.
      InputError: `out` is finished already.
      MismatchError: the shards there are of another corpus, annotator or shard size.
    """
    if (out / MANIFEST).exists():
        raise InputError(
            "the spans exist already",
            where=out,
            fix="choose another --out, or delete this folder: finished ones never change",
        )
    began = time.monotonic()
    folder = out.with_name(f"{out.name}.shards")
    facts = {"corpus_hash": store.corpus_hash, "by": annotator.identity}
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
        for marked in _write(path, store, passages, annotator, facts, stopped):
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
    annotator: SpanMarker,
    facts: dict[str, str],
    stopped: Callable[[], bool],
) -> Iterator[int]:
    """Marks one shard; tells each number of passages marked."""
    with FolderWriter(path, KIND, _FILES) as folder:
        flat = folder.array("spans.npy", np.int32, width=2)
        counts = folder.array("counts.npy", np.int32)
        for first in range(passages.start, passages.stop, BATCH_PASSAGES):
            if stopped():
                raise Interrupted
            some = range(first, min(first + BATCH_PASSAGES, passages.stop))
            for own in annotator.spans(store, some):
                flat.append(np.array(own, np.int32).reshape(-1, 2))
                counts.append(np.array([len(own)], np.int32))
            yield len(some)
        folder.commit(**facts, first=passages.start, stop=passages.stop)


def _is_finished(path: Path, expected: dict[str, Any]) -> bool:
    """Whether a sound shard is there; a damaged one is deleted, to be made again."""
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
            fix=f"run the command they are of again, or delete {path.parent}",
        )
    return True


def _read(path: Path) -> Iterator[Spans]:
    flat = np.load(path / "spans.npy", mmap_mode="r")
    bounds = np.append(0, np.load(path / "counts.npy").cumsum()).tolist()
    for start, stop in pairwise(bounds):
        yield [(int(a), int(b)) for a, b in flat[start:stop]]
