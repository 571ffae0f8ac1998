"""Embedded vectors on disk, in shards that survive a killed builder."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from etils import epath
from jaxtyping import Float32

from realm_jax.errors import DamageError
from realm_jax.retrieval.mapped_array import map_array, open_or_create, temporary_array
from realm_jax.storage import files
from realm_jax.storage.failpoints import failpoint

VECTORS = "vectors.f32"  # [N, E] little-endian float32 without a header, so shards are page-aligned


@runtime_checkable
class Shards(Protocol):
    """The vectors of all passages, some shards of which are finished.

    Attributes:
      vectors: [N, E], memory-mapped; rows of unfinished shards are undefined.
    """

    vectors: Float32[np.ndarray, "N E"]

    def load(self, start: int, stop: int) -> bool:
        """Whether rows start .. stop - 1 are finished and match their checksum."""

    def save(self, start: int, new: Float32[np.ndarray, "S E"]) -> None:
        """Stores a finished shard durably; does nothing if the folder has been deleted."""


@contextlib.contextmanager
def open_shards(folder: epath.Path, size: int, dims: int) -> Iterator[Shards]:
    """Opens the shards in `folder`, which need not exist; `vectors` stay valid after the block.

    Args:
      folder: of one snapshot; other builders may read, write and delete it at any moment.
      size: N.
      dims: E.
    """
    if not files.is_local(folder):
        yield ShardFiles(folder, size, dims)
        return
    failpoint("file.open")
    with _open_array(folder) as file:
        yield MappedShards(folder, file, size, dims)


class MappedShards:
    """Shards on a local disk: rows of one memory-mapped file, which is also the final array.

    A shard is finished once a sealed file with the checksum of its rows exists. If another builder
    deletes the folder, this builder goes on with the deleted file, which is still open.
    """

    def __init__(self, folder: epath.Path, file: FileIO, size: int, dims: int):
        self._folder, self._file = folder, file
        self.vectors = map_array(self._file, (size, dims))

    def load(self, start: int, stop: int) -> bool:
        """See `Shards.load`."""
        try:
            promised = files.read_sealed(_mark(self._folder, start))
        except DamageError:
            return False
        return promised is not None and promised == _digest(self.vectors[start:stop])

    def save(self, start: int, new: Float32[np.ndarray, "S E"]) -> None:
        """See `Shards.save`."""
        data = np.ascontiguousarray(new).data.cast("B")
        at = start * self.vectors.shape[1] * self.vectors.itemsize
        failpoint("file.write", half=lambda: self._write(data[: len(data) // 2], at))
        self._write(data, at)
        failpoint("file.flush")
        os.fsync(self._file.fileno())
        with contextlib.suppress(FileNotFoundError):  # another builder has deleted the folder
            files.write_sealed(_mark(self._folder, start), _digest(new))
        failpoint("shard.embedded")

    def _write(self, data: memoryview, at: int) -> None:
        while data:  # a write may be partial
            written = os.pwrite(self._file.fileno(), data, at)
            data, at = data[written:], at + written


class ShardFiles:
    """Shards on an object store: one file each, copied into a temporary memory-mapped array."""

    def __init__(self, folder: epath.Path, size: int, dims: int):
        self._folder = folder
        self.vectors = temporary_array((size, dims))

    def load(self, start: int, stop: int) -> bool:
        """See `Shards.load`."""
        path = self._path(start)
        try:
            promised = files.read_sealed(_mark(self._folder, start))
            if promised is None or files.digest(path) != promised:
                return False
            with path.open("rb") as file:
                shard = np.load(file)
        except (DamageError, FileNotFoundError):
            return False
        if shard.shape != (stop - start, self.vectors.shape[1]):
            return False
        self.vectors[start:stop] = shard
        return True

    def save(self, start: int, new: Float32[np.ndarray, "S E"]) -> None:
        """See `Shards.save`."""
        self.vectors[start : start + len(new)] = new
        path = self._path(start)
        files.write_array(path, new)
        files.write_sealed(_mark(self._folder, start), files.digest(path))
        failpoint("shard.embedded")

    def _path(self, start: int) -> epath.Path:
        return self._folder / f"shard_{start:010d}.npy"


def _open_array(folder: epath.Path) -> FileIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return open_or_create(Path(folder / VECTORS))
        except FileNotFoundError:
            continue  # another builder has just deleted the folder


def _mark(folder: epath.Path, start: int) -> epath.Path:
    return folder / f"shard_{start:010d}.json"


def _digest(rows: Float32[np.ndarray, "S E"]) -> dict[str, Any]:
    """Size in bytes and SHA-256 of rows that may be memory-mapped."""
    data = np.ascontiguousarray(rows).data.cast("B")
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
