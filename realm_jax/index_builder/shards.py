"""Embedded vectors in shards that survive a killed builder.

One worker on a local disk writes all shards into one memory-mapped file, which is also the array
that the index is built from. Several workers, or one on an object store, write a file per shard:
the rows, and a SHA-256 behind them, so that a shard is one object. Every checksum is of the corpus
hash and the rows: a shard of an earlier generation of the corpus counts as damaged.
"""

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
from realm_jax.storage import files, sealed
from realm_jax.storage.failpoints import failpoint

VECTORS = "vectors.f32"  # [N, E] little-endian float32 without a header, so shards are page-aligned
_PREFIX, _ENDING, _MARK = "shard_", ".f32", ".json"
_CHECKSUM_BYTES = hashlib.sha256().digest_size


@runtime_checkable
class Shards(Protocol):
    """The vectors of all passages, some shards of which are finished.

    Attributes:
      vectors: [N, E], memory-mapped; rows that were neither loaded nor saved are undefined.
    """

    vectors: Float32[np.ndarray, "N E"]

    def stored(self) -> set[int]:
        """First rows of the shards in the folder, found by one listing; they may be damaged."""

    def load(self, start: int, stop: int) -> bool:
        """Reads rows start .. stop - 1 into `vectors`; False if they are missing or damaged."""

    def save(self, start: int, new: Float32[np.ndarray, "S E"]) -> None:
        """Stores a finished shard durably, and puts it into `vectors`."""

    def delete(self, start: int) -> None:
        """Deletes a damaged shard, so that its worker embeds it again."""


@contextlib.contextmanager
def open_shards(
    folder: epath.Path, size: int, dims: int, corpus_hash: str, *, shared: bool = False
) -> Iterator[Shards]:
    """Opens the shards in `folder`, which need not exist; `vectors` stay valid after the block.

    Args:
      folder: of one snapshot.
      size: N.
      dims: E.
      corpus_hash: of the corpus that is embedded.
      shared: whether other workers write to the folder too.
    """
    if shared or not files.is_local(folder):
        yield CopiedShards(folder, size, dims, corpus_hash)
        return
    failpoint("file.open")
    folder.mkdir(parents=True, exist_ok=True)
    with open_or_create(Path(folder / VECTORS)) as file:
        yield MappedShards(folder, file, size, dims, corpus_hash)


class MappedShards:
    """Shards of one worker on a local disk: rows of one memory-mapped file.

    A shard is finished once a sealed file with the checksum of its rows exists.
    """

    def __init__(self, folder: epath.Path, file: FileIO, size: int, dims: int, corpus_hash: str):
        self._folder, self._file, self._corpus_hash = folder, file, corpus_hash
        self.vectors = map_array(self._file, (size, dims))

    def stored(self) -> set[int]:
        """See `Shards.stored`."""
        return _starts(self._folder, _MARK)

    def load(self, start: int, stop: int) -> bool:
        """See `Shards.load`."""
        try:
            promised = sealed.read(_path(self._folder, start, _MARK))
        except DamageError:
            return False
        return promised is not None and promised == self._digest(self.vectors[start:stop])

    def save(self, start: int, new: Float32[np.ndarray, "S E"]) -> None:
        """See `Shards.save`."""
        data = np.ascontiguousarray(new).data.cast("B")
        at = start * self.vectors.shape[1] * self.vectors.itemsize
        failpoint("file.write", half=lambda: self._write(data[: len(data) // 2], at))
        self._write(data, at)
        failpoint("file.flush")
        os.fsync(self._file.fileno())
        sealed.write(_path(self._folder, start, _MARK), self._digest(new))
        failpoint("shard.embedded")

    def delete(self, start: int) -> None:
        """See `Shards.delete`."""
        files.delete_file(_path(self._folder, start, _MARK))

    def _digest(self, rows: Float32[np.ndarray, "S E"]) -> dict[str, Any]:
        """Size in bytes and checksum of rows that may be memory-mapped."""
        data = np.ascontiguousarray(rows).data.cast("B")
        return {"bytes": len(data), "sha256": _checksum(self._corpus_hash, data).hex()}

    def _write(self, data: memoryview, at: int) -> None:
        while data:  # a write may be partial
            written = os.pwrite(self._file.fileno(), data, at)
            data, at = data[written:], at + written


class ShardFiles:
    """Shards of several workers, or on an object store: one file each.

    Args:
      folder: of one snapshot.
      dims: E.
      corpus_hash: of the corpus that is embedded.
    """

    def __init__(self, folder: epath.Path, dims: int, corpus_hash: str):
        self._folder, self._dims, self._corpus_hash = folder, dims, corpus_hash

    def stored(self) -> set[int]:
        """See `Shards.stored`."""
        return _starts(self._folder, _ENDING)

    def read(self, start: int, rows: int) -> Float32[np.ndarray, "S E"] | None:
        """A shard of `rows` rows; None if it is missing, damaged or of another size or corpus."""
        size = 4 * rows * self._dims + _CHECKSUM_BYTES
        data = files.read_bytes(_path(self._folder, start, _ENDING), size + 1)
        if data is None or len(data) != size:
            return None
        content = memoryview(data)[:-_CHECKSUM_BYTES]
        if _checksum(self._corpus_hash, content) != data[-_CHECKSUM_BYTES:]:
            return None
        return np.frombuffer(content, np.float32).reshape(rows, self._dims)

    def write(self, start: int, rows: Float32[np.ndarray, "S E"]) -> None:
        """Stores a finished shard durably."""
        data = np.ascontiguousarray(rows).tobytes()
        path = _path(self._folder, start, _ENDING)
        files.write_bytes(path, data + _checksum(self._corpus_hash, memoryview(data)))
        failpoint("shard.embedded")

    def delete(self, start: int) -> None:
        """See `Shards.delete`."""
        files.delete_file(_path(self._folder, start, _ENDING))


class CopiedShards(ShardFiles):
    """Shard files, copied into a temporary memory-mapped array."""

    def __init__(self, folder: epath.Path, size: int, dims: int, corpus_hash: str):
        super().__init__(folder, dims, corpus_hash)
        self.vectors = temporary_array((size, dims))

    def load(self, start: int, stop: int) -> bool:
        """See `Shards.load`."""
        shard = self.read(start, stop - start)
        if shard is not None:
            self.vectors[start:stop] = shard
        return shard is not None

    def save(self, start: int, new: Float32[np.ndarray, "S E"]) -> None:
        """See `Shards.save`."""
        self.vectors[start : start + len(new)] = new
        self.write(start, new)


def _path(folder: epath.Path, start: int, ending: str) -> epath.Path:
    return folder / f"{_PREFIX}{start:010d}{ending}"


def _starts(folder: epath.Path, ending: str) -> set[int]:
    """First rows of the shards that have a file with this ending."""
    names = (name for name in files.list_names(folder) if name.startswith(_PREFIX))
    starts = (name.removeprefix(_PREFIX).removesuffix(ending) for name in names)
    return {int(start) for start in starts if start.isdecimal()}


def _checksum(corpus_hash: str, data: memoryview) -> bytes:
    found = hashlib.sha256(corpus_hash.encode())
    found.update(data)
    return found.digest()
