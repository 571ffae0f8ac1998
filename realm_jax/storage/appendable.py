"""Files that grow by appending, and the journal by which a killed writer goes on where it was."""

import json
import os
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

import numpy as np


class BytesFile:
    """Raw bytes, appended.

    Args:
      path: the file.
      size: what is kept of an earlier file, in bytes; None starts afresh.
    """

    def __init__(self, path: Path, size: int | None = None):
        self._file, self.size = _opened(path, size), size or 0

    def append(self, content: bytes) -> None:
        """Adds bytes at the end."""
        self._file.write(content)
        self.size += len(content)

    def sync(self) -> None:
        """Returns when all bytes are on the disk."""
        _sync(self._file)

    def close(self) -> None:
        """Closes the file when all is on the disk."""
        _sync(self._file)
        self._file.close()


class ArrayFile:
    """An .npy file that grows by appending rows, so that no list of them is ever held.

    Args:
      path: the file.
      dtype: of the array.
      width: second axis, or None for an array of one axis.
      size: rows kept of an earlier file; None starts afresh.
    """

    def __init__(
        self, path: Path, dtype: type[np.generic], width: int | None = None, size: int | None = None
    ):
        self._dtype = np.dtype(dtype)
        self._row = () if width is None else (width,)
        self.size = size or 0
        row_bytes = self._dtype.itemsize * (width or 1)
        kept = None if size is None else len(self._header()) + size * row_bytes
        self._file = _opened(path, kept)
        if size is None:
            self._file.write(self._header())

    def append(self, rows: np.ndarray) -> None:
        """Adds rows, cast to the file's dtype; a value that does not fit is refused."""
        if rows.size and rows.dtype != self._dtype:
            limits = np.iinfo(self._dtype)
            assert limits.min <= rows.min() and rows.max() <= limits.max, (rows.max(), limits)
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())
        self.size += len(rows)

    def sync(self) -> None:
        """Returns when all rows are on the disk."""
        _sync(self._file)

    def close(self) -> None:
        """Puts the final row count in the header."""
        self._file.seek(0)
        self._file.write(self._header())
        _sync(self._file)
        self._file.close()

    def _header(self) -> bytes:
        # numpy leaves room in the header for a growing first axis: its length stays the same.
        memory = BytesIO()
        np.lib.format.write_array_header_1_0(
            memory,
            {"descr": self._dtype.str, "fortran_order": False, "shape": (self.size, *self._row)},
        )
        return memory.getvalue()


class Journal:
    """What of a folder's growing files is whole and on the disk, one JSON line per finished shard.

    The first line says what is being written. A later line that a kill cut short does not count.

    Args:
      path: the file.
      settings: what must be the same for a later run to go on; JSON.

    Attributes:
      last: the facts of the last finished shard, None when there is none or it was written with
        other settings.
    """

    def __init__(self, path: Path, settings: dict[str, Any]):
        self._path = path
        lines = whole_lines(path)
        resumed = len(lines) > 1 and lines[0] == settings
        self.last: dict[str, Any] | None = lines[-1] if resumed else None
        self._start = lines if resumed else [settings]

    def rewrite(self) -> None:
        """Leaves only what counts: the settings, and the shards to go on from."""
        self._path.write_text("".join(f"{json.dumps(line)}\n" for line in self._start))

    def add(self, facts: dict[str, Any]) -> None:
        """Returns when the line is on the disk."""
        with self._path.open("ab") as file:
            file.write(f"{json.dumps(facts)}\n".encode())
            _sync(file)


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal that were written to their end; none if there is no journal."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]  # after the last line end: nothing, or half a line
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        return []


def _opened(path: Path, size: int | None) -> BufferedIOBase:
    if size is None:
        return path.open("wb")
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


def _sync(file: BufferedIOBase) -> None:
    file.flush()
    os.fsync(file.fileno())
