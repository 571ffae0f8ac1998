"""An immutable folder of arrays: a manifest, written last, promises every byte of it."""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from realm_jax.errors import DamageError, InputError
from realm_jax.storage.appendable import ArrayFile, BytesFile, Journal, whole_lines

MANIFEST = "manifest.json"
JOURNAL = "unfinished.jsonl"
FORMAT = 1
_FROM_HERE = (
    "this path is looked for from {}: go to the directory it was given in, of a run where the run "
    "was begun, or give the whole path"
)


class FolderWriter:
    """Writes a fresh folder. Without `commit` (an error, a kill) it stays unfinished.

    What an earlier run left unfinished is started over, or continued after its last finished shard
    if that run had the same `settings`.

    Args:
      path: the folder, made if need be.
      kind: of the manifest.
      names: the files it may hold, besides the manifest.
      settings: all that decides what is written, but the input; JSON. None never continues.

    Attributes:
      shard: the facts given to `finish_shard` by the run that is being continued, else None.

    Raises:
      InputError: the folder is finished already, or holds files that are not of this kind.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        names: tuple[str, ...],
        settings: dict[str, Any] | None = None,
    ):
        self.path, self.kind, self._names = Path(path), kind, names
        self._files: dict[str, ArrayFile | BytesFile] = {}
        if (self.path / MANIFEST).exists():
            raise InputError(
                f"the {kind} exists already",
                where=self.path,
                fix="choose another folder, or delete this one: finished folders never change",
            )
        present = {p.name for p in self.path.iterdir()} if self.path.is_dir() else set()
        strange = sorted(present - {*names, JOURNAL})
        if strange:
            raise InputError(
                "folder holds other files",
                where=self.path,
                expected="a new or empty folder",
                found=", ".join(strange[:3]),
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._journal = None if settings is None else Journal(self.path / JOURNAL, settings)
        self.shard = self._journal.last if self._journal else None
        for name in present if self.shard is None else ():
            (self.path / name).unlink()
        if self._journal:
            self._journal.rewrite()

    def array(self, name: str, dtype: type[np.generic], width: int | None = None) -> ArrayFile:
        """An array file of this folder, closed with it."""
        file = ArrayFile(self.path / name, dtype, width, self._kept(name))
        self._files[name] = file
        return file

    def bytes(self, name: str) -> BytesFile:
        """A file of bytes of this folder, closed with it."""
        file = BytesFile(self.path / name, self._kept(name))
        self._files[name] = file
        return file

    def _kept(self, name: str) -> int | None:
        return None if self.shard is None else self.shard["sizes"][name]

    def finish_shard(self, **facts: Any) -> None:
        """Makes what was appended so far last: a later run with the same settings goes on here."""
        assert self._journal is not None, "a folder without settings has no shards"
        for file in self._files.values():
            file.sync()
        sizes = {name: file.size for name, file in self._files.items()}
        self._journal.add({**facts, "sizes": sizes})

    def commit(self, **facts: Any) -> dict[str, Any]:
        """Closes the files, sums up every one and writes the manifest; returns it."""
        self.close()
        files = {
            name: {"bytes": (self.path / name).stat().st_size, "sha256": digest(self.path / name)}
            for name in self._names
            if (self.path / name).exists()
        }
        manifest = {"kind": self.kind, "format": FORMAT, **facts, "files": files}
        manifest["content_hash"] = content_hash(files)
        (self.path / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
        (self.path / JOURNAL).unlink(missing_ok=True)
        return manifest

    def close(self) -> None:
        """Closes the files, finished or not."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def __enter__(self) -> "FolderWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def has_shards(path: Path) -> bool:
    """Whether an unfinished folder holds a finished shard that a later run can go on from."""
    return len(whole_lines(path / JOURNAL)) > 1


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
        nowhere = not path.is_absolute() and not path.is_dir()
        raise InputError(
            f"no {kind}",
            where=path,
            expected=f"a folder with {MANIFEST}",
            found=state,
            fix=_FROM_HERE.format(Path.cwd()) if nowhere else None,
        )
    try:
        manifest = json.loads(file.read_text())
        found = (manifest["kind"], manifest["format"])
        complete = isinstance(manifest["content_hash"], str) and all(
            isinstance(promise["bytes"], int) and isinstance(promise["sha256"], str)
            for promise in manifest["files"].values()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamageError("manifest cannot be read", where=file, found=repr(error)) from error
    if found != (kind, FORMAT) or not complete:
        raise InputError(
            f"not a {kind} that this version reads",
            where=file,
            expected=f"{kind}, format {FORMAT}",
            found=f"{found[0]}, format {found[1]}",
        )
    return manifest
