"""Publishes generations of a corpus; one process at a time."""

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int64

from realm_jax.corpus import generation_files as names
from realm_jax.corpus.copy_rows import copy_rows
from realm_jax.corpus.generation_files import Layer, read_layer
from realm_jax.corpus.generation_retention import delete_merged
from realm_jax.corpus.layered_spans import copy_spans
from realm_jax.corpus.layered_store import NO_PART, open_generation, overlay
from realm_jax.corpus.lineage import write_lineage
from realm_jax.corpus.mark_spans import mark_added
from realm_jax.corpus.spans import FOLDER as SPANS
from realm_jax.corpus.store import VOCABULARY, PassageStore
from realm_jax.corpus.store_writer import StoreWriter
from realm_jax.errors import InputError
from realm_jax.storage import commit, files
from realm_jax.storage.flock import exclusive
from realm_jax.storage.layout import MANIFEST

# In the folder of the generations:
LOCK, STAGING_LOCK = "lock", "staging.lock"  # never deleted
STAGING = "staging"
_WAITING = "waiting for another command that changes this corpus"
MOST_LAYERS = 8  # generations that are read together; more are merged
NO_COUNTS = {"added": 0, "replaced": 0, "removed": 0}


@dataclass(frozen=True)
class Change:
    """The content of a new generation.

    Attributes:
      write_part: writes its passages into a new folder, as a corpus; None if there are none.
      ids: passage id of each of them, ascending.
      removed: ids, ascending, that do not exist from here on; none of them is in `ids`.
      fields: of the manifest; `added`, `replaced` and `removed` are required.
    """

    write_part: Callable[[Path], object] | None
    ids: Int64[np.ndarray, "R"]
    removed: Int64[np.ndarray, "D"]
    fields: dict[str, Any] = field(default_factory=lambda: NO_COUNTS)


@contextlib.contextmanager
def newest_to_change(corpus: str | Path | PassageStore) -> Iterator[PassageStore]:
    """The newest generation of a corpus, while no other process publishes one.

    Args:
      corpus: its folder, or any generation of it.

    Raises:
      InputError, DamageError: see `PassageStore.open`.
    """
    path = corpus.path if isinstance(corpus, PassageStore) else corpus
    with _locked(path, LOCK):
        newest = names.newest_generation(path)
        if newest > 1 and names.pointed_generation(path) != newest:
            commit.advance_pointer(names.parent_of(path), newest)  # its writer was killed
        yield corpus.newest() if isinstance(corpus, PassageStore) else PassageStore.open(corpus)


@contextlib.contextmanager
def staging(corpus: str | Path) -> Iterator[Path]:
    """A folder for what is written before a publication; it keeps the files of a killed process.

    One process at a time prepares a large change; meanwhile others may publish small ones.

    Raises:
      InputError, DamageError: see `PassageStore.open`.
    """
    with _locked(corpus, STAGING_LOCK) as folder:
        (folder / STAGING).mkdir(exist_ok=True)
        yield folder / STAGING


@contextlib.contextmanager
def _locked(corpus: str | Path, name: str) -> Iterator[Path]:
    """Holds a lock in the folder of the generations, which is yielded."""
    if not Path(corpus, MANIFEST).exists():
        PassageStore.open(corpus)  # raises the error, before a file is written
    folder = Path(names.parent_of(corpus))
    folder.mkdir(exist_ok=True)
    with exclusive(folder / name, f"{_WAITING}: {corpus}", "change it with one process at a time"):
        yield folder


def publish_change(store: PassageStore, change: Change) -> PassageStore:
    """Publishes the generation that follows `store`, the newest one; returns it.

    If more than MOST_LAYERS generations would be read together, small ones are merged first.

    Raises:
      InputError: no passage would exist.
    """
    appeared, disappeared = ~store.is_live(change.ids), store.is_live(change.removed)
    passages = store.passages() + int(appeared.sum()) - int(disappeared.sum())
    if not passages:
        raise InputError(
            "a corpus needs at least one passage",
            where=store.path,
            expected="a change after which a passage exists",
            found="one that removes all",
        )
    if len(store.layers) >= MOST_LAYERS:
        store = merge(store, _layers_to_keep(store))
    changed = np.union1d(change.ids, change.removed)
    when = np.full(len(changed), store.generation + 1)
    size = max(len(store), int(change.ids.max(initial=-1)) + 1)
    changes = np.stack([changed, when], 1)
    return _publish(store, change, changes, size, passages, kept=store.layers)


def _layers_to_keep(store: PassageStore) -> int:
    """How many layers, the oldest ones, are not merged; at least one.

    The sizes of the layers then grow geometrically towards the oldest, so each passage is copied a
    logarithmic number of times.
    """
    changes = [read_layer(store.path, layer).changes for layer in store.layers[1:]]
    sizes = [0, *map(len, changes)]
    keep = len(sizes) - 2
    while keep > 1 and sizes[keep - 1] <= 2 * sum(sizes[keep:]):
        keep -= 1
    return keep


def merge(store: PassageStore, keep: int) -> PassageStore:
    """Publishes a generation of the same content, in which the layers from `keep` on are one."""
    layers = [read_layer(store.path, layer) for layer in store.layers[keep:]]
    found, part, row = overlay(layers)
    exists, parts = part != NO_PART, [PassageStore(one.part) for one in layers if one.part]

    def write(folder: Path) -> None:
        write_rows(store, folder, parts, part[exists] - 1, row[exists])

    change = Change(write if exists.any() else None, found[exists], found[:-1][~exists[:-1]])
    changes = _newest_changes(layers)
    size, passages, kept = len(store), store.passages(), store.layers[:keep]
    merged = _publish(store, change, changes, size, passages, kept=kept, same=True)
    delete_merged(store.path, merged.generation)
    return merged


def publish_compacted(
    newest: PassageStore, store: PassageStore, part: Path, removed: Int64[np.ndarray, "D"]
) -> PassageStore:
    """Publishes a generation of the content of `newest`, in which the layers of `store` are one.

    Args:
      newest: the newest generation.
      store: an earlier one, or the same.
      part: folder with a row for each passage id of `store`; moved into the generation.
      removed: ids of the rows without text.
    """

    def move(folder: Path) -> None:
        shutil.move(part, folder)

    change = Change(move, np.empty(0, np.int64), removed)
    layers = [read_layer(store.path, layer) for layer in store.layers if layer > 1]
    changes = _newest_changes(layers)
    later = [layer for layer in newest.layers if layer not in store.layers]
    size, passages = len(newest), newest.passages()
    return _publish(newest, change, changes, size, passages, later=later, same=True)


def write_rows(
    store: PassageStore,
    folder: Path,
    parts: list[PassageStore],
    part: np.ndarray,
    row: np.ndarray,
) -> None:
    """Writes passages of the parts of `store` as a corpus, with their marks; see `copy_rows`."""
    pieces = store.manifest.get("passage_pieces") or 0
    writer = StoreWriter(folder, store.path / VOCABULARY, pieces)
    try:
        copy_rows(writer, parts, part, row)
        writer.commit()
    finally:
        writer.close()
    copy_spans(folder, parts, part, row)


def mark_part(store: PassageStore, folder: Path, workers: int = 1) -> None:
    """Marks the salient spans of new passages of a corpus, if the corpus has marks.

    Args:
      store: the corpus.
      folder: the new passages.
      workers: number of processes.
    """
    if (store.path / SPANS / MANIFEST).exists():
        mark_added(PassageStore(folder), store, workers)


def _newest_changes(layers: Sequence[Layer]) -> Int64[np.ndarray, "C 2"]:
    """The changes of several layers: of each id the last."""
    changes = np.concatenate([layer.changes for layer in layers])
    changes = changes[np.lexsort(changes.T[::-1])]  # by id, then by generation
    return changes[np.append(np.diff(changes[:, 0]) > 0, True)]


def _publish(
    store: PassageStore,
    change: Change,
    changes: Int64[np.ndarray, "C 2"],
    size: int,
    passages: int,
    *,
    kept: Sequence[int] = (),
    later: Sequence[int] = (),
    same: bool = False,
) -> PassageStore:
    """Publishes the files of the generation after `store`, the newest one.

    Args:
      store: the newest generation.
      change: what is written.
      changes: for `names.CHANGES`.
      size: highest passage id + 1.
      passages: that exist.
      kept: generations whose files are read before its own.
      later: generations whose files are read after its own.
      same: its content is that of `store`.
    """
    generation = store.generation + 1
    counts = {"size": size, "passages": passages}
    layers = [*kept, generation, *later]
    manifest = {"kind": names.KIND, **change.fields, **counts, "layers": layers}

    def write(folder: epath.Path) -> None:
        files.write_array(folder / names.IDS, change.ids)
        files.write_array(folder / names.REMOVED, change.removed)
        files.write_array(folder / names.CHANGES, changes)
        content = hashlib.sha256(change.ids.tobytes() + b"|" + change.removed.tobytes())
        if change.write_part is not None:
            part = Path(folder) / names.PART
            change.write_part(part)
            content.update(PassageStore(part).corpus_hash.encode())
        manifest["content_hash"] = content.hexdigest()
        chained = hashlib.sha256(f"{store.corpus_hash} {content.hexdigest()}".encode())
        manifest["corpus_hash"] = store.corpus_hash if same else chained.hexdigest()
        manifest.update(write_lineage(store.path, [*store.lineage, manifest["corpus_hash"]]))

    is_new = commit.publish(names.parent_of(store.path), generation, write, manifest)
    assert is_new, f"generation {generation} was published before"
    return open_generation(store.path, generation, store)
