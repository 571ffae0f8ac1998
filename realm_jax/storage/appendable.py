"""Resumable writing of a durable folder: files that grow by appending, and a journal of shards.

A writer appends rows to several files and marks the end of each shard in the journal. If it is
killed, the next writer with the same settings truncates the files to the last finished shard and
continues there. `FolderWriter.commit` publishes the folder (`storage.commit`).
"""

import hashlib
import json
import os
from collections.abc import Set
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from realm_jax.errors import InputError
from realm_jax.storage import commit, files
from realm_jax.storage.integrity import OLD_MANIFEST
from realm_jax.storage.layout import JOURNAL, MANIFEST


class BytesFile:
    """A file of raw bytes that grows by appending.

    Args:
      path: the file.
      size: bytes to keep of an existing file; None starts an empty file.
    """

    def __init__(self, path: Path, size: int | None = None):
        self._file, self.size = _open_at(path, size), size or 0

    def append(self, content: bytes) -> None:
        """Adds bytes at the end."""
        self._file.write(content)
        self.size += len(content)

    def sync(self) -> None:
        """Returns once all bytes are on the disk."""
        _sync(self._file)

    def close(self) -> None:
        """Closes the file; `sync` or `commit.measure` makes it durable."""
        self._file.close()


class ArrayFile:
    """An .npy file that grows by appending rows; the array is never held in memory.

    Args:
      path: the file.
      dtype: of the array.
      width: length of the second axis; None for an array with one axis.
      size: rows to keep of an existing file; None starts an empty file.
    """

    def __init__(
        self, path: Path, dtype: type[np.generic], width: int | None = None, size: int | None = None
    ):
        self._dtype = np.dtype(dtype)
        self._row_shape = () if width is None else (width,)
        self.size = size or 0
        row_bytes = self._dtype.itemsize * (width or 1)
        kept = None if size is None else len(self._header()) + size * row_bytes
        self._file = _open_at(path, kept)
        if size is None:
            self._file.write(self._header())

    def append(self, rows: np.ndarray) -> None:
        """Adds rows, cast to the dtype of the file; every value must fit into that dtype."""
        if rows.size and rows.dtype != self._dtype:
            limits = np.iinfo(self._dtype)
            assert limits.min <= rows.min() and rows.max() <= limits.max, (rows.max(), limits)
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())
        self.size += len(rows)

    def sync(self) -> None:
        """Returns once all rows are on the disk."""
        _sync(self._file)

    def close(self) -> None:
        """Writes the final row count into the header and closes the file; see `BytesFile.close`."""
        with self._file as file:
            file.seek(0)
            file.write(self._header())

    def _header(self) -> bytes:
        # numpy pads the header for a growing first axis, so its length does not change.
        memory = BytesIO()
        np.lib.format.write_array_header_1_0(
            memory,
            {
                "descr": self._dtype.str,
                "fortran_order": False,
                "shape": (self.size, *self._row_shape),
            },
        )
        return memory.getvalue()


class Journal:
    """The finished shards of an unfinished folder, one JSON line each.

    The first line holds the settings of the writer. An incomplete last line is ignored: the writer
    was killed while it wrote that line.

    Args:
      path: the file.
      settings: JSON; a later writer continues only if its settings are equal.

    Attributes:
      last: fields of the last finished shard; None if there is none, or if the settings differ.
    """

    def __init__(self, path: Path, settings: dict[str, Any]):
        self._path = path
        lines = complete_lines(path)
        resumed = len(lines) > 1 and lines[0] == settings
        self.last: dict[str, Any] | None = lines[-1] if resumed else None
        self._kept = lines if resumed else [settings]

    def rewrite(self) -> None:
        """Removes an incomplete last line, and the shards of a writer with other settings."""
        self._path.write_text("".join(f"{json.dumps(line)}\n" for line in self._kept))

    def add(self, fields: dict[str, Any]) -> None:
        """Adds a shard; returns once the line is on the disk."""
        with self._path.open("ab") as file:
            file.write(f"{json.dumps(fields)}\n".encode())
            _sync(file)


def is_cut_short(name: str) -> bool:
    """Whether a killed writer left this file while it wrote the manifest or the journal."""
    return name.startswith((MANIFEST, JOURNAL)) and name.endswith(files.PARTIAL)


class FolderWriter:
    """Writes a new folder of appendable files; `commit` publishes it.

    Without `commit` (an error or a kill) the folder stays unfinished. The next writer continues
    after the last finished shard if its settings are equal, else it starts again from nothing.

    Args:
      path: the folder; created if it does not exist.
      kind: recorded in the manifest.
      names: the files that the folder may hold, besides the manifest.
      settings: everything except the input that determines the content; JSON. None never continues.
      unhashed: files that do not count in `content_hash`.

    Attributes:
      last_shard: the fields given to the last `finish_shard` of the writer that is continued, and
        `sizes`; None if nothing is continued.

    Raises:
      InputError: the folder is finished already, or holds other files.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        names: tuple[str, ...],
        settings: dict[str, Any] | None = None,
        unhashed: Set[str] = frozenset(),
    ):
        self.path, self.kind, self._unhashed = Path(path), kind, unhashed
        self._files: dict[str, ArrayFile | BytesFile] = {}
        present = {file.name for file in self.path.iterdir()} if self.path.is_dir() else set()
        cut_short = {name for name in present if is_cut_short(name)}
        self._assert_writable(present - cut_short, {*names, JOURNAL})
        self.path.mkdir(parents=True, exist_ok=True)
        self._journal = None if settings is None else Journal(self.path / JOURNAL, settings)
        self.last_shard = self._journal.last if self._journal else None
        for name in present if self.last_shard is None else cut_short:
            (self.path / name).unlink()
        if self._journal:
            self._journal.rewrite()

    def _assert_writable(self, present: set[str], allowed: set[str]) -> None:
        if MANIFEST in present or OLD_MANIFEST in present:
            raise InputError(
                f"the {self.kind} folder already exists",
                where=self.path,
                fix="choose another folder, or delete this one: finished folders never change",
            )
        others = sorted(present - allowed)
        if others:
            raise InputError(
                "folder holds other files",
                where=self.path,
                expected="a new or empty folder",
                found=", ".join(others[:3]),
            )

    def array(self, name: str, dtype: type[np.generic], width: int | None = None) -> ArrayFile:
        """Opens an array file of this folder; `close` closes it."""
        file = ArrayFile(self.path / name, dtype, width, self._kept_size(name))
        self._files[name] = file
        return file

    def bytes(self, name: str) -> BytesFile:
        """Opens a file of raw bytes of this folder; `close` closes it."""
        file = BytesFile(self.path / name, self._kept_size(name))
        self._files[name] = file
        return file

    def _kept_size(self, name: str) -> int | None:
        return None if self.last_shard is None else self.last_shard["sizes"][name]

    def finish_shard(self, **fields: Any) -> None:
        """Makes all appended rows durable: a later writer with equal settings continues here."""
        assert self._journal is not None, "a folder without settings has no shards"
        for file in self._files.values():
            file.sync()
        sizes = {name: file.size for name, file in self._files.items()}
        self._journal.add({**fields, "sizes": sizes})

    def commit(self, **fields: Any) -> dict[str, Any]:
        """Closes the files and publishes the folder.

        Returns:
          The manifest: `fields`, the checksum of every file, and `content_hash`.
        """
        self.close()
        folder = epath.Path(self.path)
        files = commit.measure(folder)
        hashed = {name: file for name, file in files.items() if name not in self._unhashed}
        fields = {"kind": self.kind, **fields, "content_hash": content_hash(hashed)}
        manifest = commit.write_manifest(folder, fields, files)
        (self.path / JOURNAL).unlink(missing_ok=True)
        return manifest

    def close(self) -> None:
        """Closes the files, finished or not; if one fails, the next call closes the others."""
        while self._files:
            self._files.popitem()[1].close()

    def __enter__(self) -> "FolderWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def has_shards(folder: Path) -> bool:
    """Whether an unfinished folder has a finished shard, after which a writer could continue."""
    return len(complete_lines(folder / JOURNAL)) > 1


def complete_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a journal; empty if there is no journal, or if it is damaged."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]  # behind the last newline: an incomplete line
    try:
        records = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return []
    return records if all(isinstance(record, dict) for record in records) else []


def content_hash(files: dict[str, dict[str, Any]]) -> str:
    """SHA-256 over the names and checksums of all files; independent of the folder's path."""
    lines = [f"{name} {files[name]['sha256']}\n" for name in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _open_at(path: Path, size: int | None) -> BufferedIOBase:
    """Opens a file to append to: truncated to `size` bytes, or empty if `size` is None."""
    if size is None:
        return path.open("wb")
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


def _sync(file: BufferedIOBase) -> None:
    file.flush()
    os.fsync(file.fileno())
