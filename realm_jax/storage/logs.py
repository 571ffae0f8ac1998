"""Logs of JSON lines: one process appends, others read; on local disks and object stores.

A local log is one file. An object store cannot append, so there a log is a folder of parts, called
`NAME.parts`. Each writer adds parts of its own. It lists the folder at its first record, and writes
its newest part again with every record until the part is large enough. So the cost of a record does
not depend on the length of the log.
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax.storage import files

PART = 1 << 16  # bytes after which a log on an object store starts a new part


class Log:
    """Appends records to a log, which has one writer at a time.

    Args:
      path: the log.
      sync: whether a record survives a loss of power once `append` has returned, on a disk; on an
        object store it always does.
    """

    def __init__(self, path: epath.Path, *, sync: bool = False):
        self._path, self._sync = path, sync
        self._part, self._number = b"", -1
        if files.is_local(path):
            path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, record: dict[str, Any]) -> None:
        """Adds one JSON object."""
        if files.is_local(self._path):
            files.append_line(self._path, record, sync=self._sync)
            return
        line = json.dumps(record).encode() + b"\n"
        if self._number < 0:
            self._number = add_part(self._path, line)
            self._part = line
        elif len(self._part) > PART:
            self._number = add_part(self._path, line, self._number + 1)
            self._part = line
        else:
            self._part += line
            files.write_bytes(_part(self._path, self._number), self._part)


def add_part(path: epath.Path, content: bytes, number: int | None = None) -> int:
    """Adds a part to a log on an object store, after all others; returns its number.

    `number` is tried first; without it, and if another writer has that part, the parts are listed.
    """
    if number is None:
        number = _next_number(path)
    while not files.create(_part(path, number), content):
        tried, number = number, _next_number(path)
        if number <= tried:  # it was not created because another writer has it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return number


def _next_number(path: epath.Path) -> int:
    names = [name for name in files.list_names(_parts(path)) if name.isdecimal()]
    return max(map(int, names), default=-1) + 1


def read_log(path: epath.Path, *numbers: str) -> list[dict[str, Any]]:
    """The records of a log; damaged lines, as a killed or a concurrent writer leaves, are skipped.

    `numbers`: names of the whole numbers that each record must have.
    """
    found = _records(log_bytes(path))
    return [one for one in found if all(isinstance(one.get(name), int) for name in numbers)]


def _records(content: bytes) -> list[dict[str, Any]]:
    found = []
    for line in content.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found += [record] if isinstance(record, dict) else []
    return found


def last_record(path: epath.Path) -> dict[str, Any] | None:
    """The newest record of a log; reads no more than the end of the log."""
    if files.is_local(path):
        end = _read_end(path, PART)
    else:
        names = files.list_names(_parts(path))
        end = files.read_bytes(_parts(path) / names[-1]) or b"" if names else b""
    records = _records(end)
    return records[-1] if records else None


def log_bytes(path: epath.Path) -> bytes:
    """The content of a log; empty if it does not exist."""
    if files.is_local(path):
        return files.read_bytes(path) or b""
    parts = (_parts(path) / name for name in files.list_names(_parts(path)))
    return b"".join(files.read_bytes(part) or b"" for part in parts)


def _parts(path: epath.Path) -> epath.Path:
    return path.with_name(path.name + ".parts")


def _part(path: epath.Path, number: int) -> epath.Path:
    return _parts(path) / f"{number:06d}"


def _read_end(path: epath.Path, size: int) -> bytes:
    """The last `size` bytes of a local log, or all of a smaller one; empty if there is none."""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - size, 0))
            return file.read()
    except FileNotFoundError:
        return b""
