"""Logs of JSON lines: one process appends, others read; on local disks and object stores.

A local log is one file. An object store cannot append, so there a log is a folder of parts, called
`NAME.parts`. The newest part is written again with every record until it is large enough.
"""

import json
from typing import Any

from etils import epath

from realm_jax.storage import files

PART = 1 << 16  # bytes after which a log on an object store starts a new part


class Log:
    """Appends records to a log, which has one writer at a time."""

    def __init__(self, path: epath.Path):
        self._path = path
        self._part, self._number = b"", -1
        if files.is_local(path):
            path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, record: dict[str, Any]) -> None:
        """Adds one JSON object."""
        if files.is_local(self._path):
            files.append_line(self._path, record)
            return
        line = json.dumps(record).encode() + b"\n"
        if self._number < 0 or len(self._part) > PART:
            self._part, self._number = b"", len(files.list_names(_parts(self._path)))
        self._part += line
        files.write_bytes(_parts(self._path) / f"{self._number:06d}", self._part)


def read_log(path: epath.Path) -> list[dict[str, Any]]:
    """The records of a log; incomplete lines, of a killed or a concurrent writer, are skipped."""
    found = []
    for line in log_bytes(path).splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found += [record] if isinstance(record, dict) else []
    return found


def log_bytes(path: epath.Path) -> bytes:
    """The content of a log; empty if it does not exist."""
    if files.is_local(path):
        return files.read_bytes(path) or b""
    parts = (_parts(path) / name for name in files.list_names(_parts(path)))
    return b"".join(files.read_bytes(part) or b"" for part in parts)


def _parts(path: epath.Path) -> epath.Path:
    return path.with_name(path.name + ".parts")
