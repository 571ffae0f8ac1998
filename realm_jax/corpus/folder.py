"""An immutable folder of arrays: a manifest, written last, promises every byte of it."""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from realm_jax.errors import DamageError, InputError

MANIFEST = "manifest.json"
FORMAT = 1


class ArrayFile:
    """An .npy file that grows by appending rows, so that no list of them is ever held."""

    def __init__(self, path: Path, dtype: type[np.generic], width: int | None = None):
        self._file = path.open("wb")
        self._dtype = np.dtype(dtype)
        self._row = () if width is None else (width,)
        self.rows = 0
        self._header()

    def append(self, rows: np.ndarray) -> None:
        """Adds rows, cast to the file's dtype; a value that does not fit is refused."""
        if rows.size and rows.dtype != self._dtype:
            limits = np.iinfo(self._dtype)
            assert limits.min <= rows.min() and rows.max() <= limits.max, (rows.max(), limits)
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())
        self.rows += len(rows)

    def close(self) -> None:
        """Puts the final row count in the header."""
        self._file.seek(0)
        self._header()
        self._file.close()

    def _header(self) -> None:
        # numpy leaves room in the header for a growing first axis: its length stays the same.
        np.lib.format.write_array_header_1_0(
            self._file,
            {"descr": self._dtype.str, "fortran_order": False, "shape": (self.rows, *self._row)},
        )


class FolderWriter:
    """Writes a fresh folder. Without `commit` (an error, a kill) it stays unfinished.

    A folder left unfinished by an earlier run is started over.

    Raises:
      InputError: the folder is finished already, or holds files that are not of this kind.
    """

    def __init__(self, path: str | Path, kind: str, names: tuple[str, ...]):
        self.path, self.kind, self._names = Path(path), kind, names
        self._arrays: dict[str, ArrayFile] = {}
        if (self.path / MANIFEST).exists():
            raise InputError(
                f"the {kind} exists already",
                where=self.path,
                fix="choose another folder, or delete this one: finished folders never change",
            )
        present = [p.name for p in self.path.iterdir()] if self.path.is_dir() else []
        strange = sorted(set(present) - set(names))
        if strange:
            raise InputError(
                "folder holds other files",
                where=self.path,
                expected="a new or empty folder",
                found=", ".join(strange[:3]),
            )
        self.path.mkdir(parents=True, exist_ok=True)
        for name in present:
            (self.path / name).unlink()

    def array(self, name: str, dtype: type[np.generic], width: int | None = None) -> ArrayFile:
        """A new array file of this folder, closed with it."""
        self._arrays[name] = ArrayFile(self.path / name, dtype, width)
        return self._arrays[name]

    def commit(self, **facts: Any) -> dict[str, Any]:
        """Closes the arrays, sums up every file and writes the manifest; returns it."""
        self.close()
        files = {
            name: {"bytes": (self.path / name).stat().st_size, "sha256": digest(self.path / name)}
            for name in self._names
            if (self.path / name).exists()
        }
        manifest = {"kind": self.kind, "format": FORMAT, **facts, "files": files}
        manifest["content_hash"] = content_hash(files)
        (self.path / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
        return manifest

    def close(self) -> None:
        """Closes the arrays, finished or not."""
        for array in self._arrays.values():
            array.close()
        self._arrays = {}

    def __enter__(self) -> "FolderWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def digest(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_hash(files: dict[str, dict[str, Any]]) -> str:
    """One checksum for all files of a folder: sha256 over their names and checksums."""
    lines = [f"{name} {files[name]['sha256']}\n" for name in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_manifest(path: Path, kind: str) -> dict[str, Any]:
    """The manifest of a finished folder whose files have the sizes it promises.

    Raises:
      InputError: no such folder, not finished, another kind or a format of another version.
      DamageError: a file is missing or has another size; names it.
    """
    manifest = _manifest(path, kind)
    for name, promise in manifest["files"].items():
        file = path / name
        found = file.stat().st_size if file.is_file() else None
        if found != promise["bytes"]:
            raise DamageError(
                f"{kind} is damaged",
                where=file,
                expected=f"{promise['bytes']} bytes",
                found="no file" if found is None else f"{found} bytes",
                fix="copy or build it again",
            )
    return manifest


def problems(path: Path, kind: str) -> list[dict[str, str]]:
    """Every file that is not what the manifest promises, by checksum; reads all bytes.

    Returns:
      Dicts with `file`, `expected` and `found`; empty when the folder is sound.
    """
    manifest = _manifest(path, kind)
    found = []
    for name, promise in manifest["files"].items():
        file = path / name
        checksum = digest(file) if file.is_file() else "no file"
        if checksum != promise["sha256"]:
            found.append({"file": name, "expected": promise["sha256"], "found": checksum})
    expected = content_hash(manifest["files"])
    if manifest["content_hash"] != expected:
        found.append({"file": MANIFEST, "expected": expected, "found": manifest["content_hash"]})
    return found


def _manifest(path: Path, kind: str) -> dict[str, Any]:
    file = path / MANIFEST
    if not file.is_file():
        state = "a folder without manifest (unfinished)" if path.is_dir() else "no folder"
        raise InputError(
            f"no {kind}", where=path, expected=f"a folder with {MANIFEST}", found=state
        )
    try:
        manifest = json.loads(file.read_text())
        found = (manifest["kind"], manifest["format"])
        complete = {"files", "content_hash"} <= manifest.keys()
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise DamageError("manifest cannot be read", where=file, found=repr(error)) from error
    if found != (kind, FORMAT) or not complete:
        raise InputError(
            f"not a {kind} that this version reads",
            where=file,
            expected=f"{kind}, format {FORMAT}",
            found=f"{found[0]}, format {found[1]}",
        )
    return manifest
