"""Opens the files of `--input` one after the other as byte streams."""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import Any

from realm_jax.errors import InputError

_ARCHIVES = (".tar", ".tar.xz", ".tar.gz", ".tgz", ".tar.bz2")
_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}


Suffix = str | tuple[str, ...]  # one suffix of file names, or several


@dataclass(frozen=True)
class Stream:
    """A named file opened for reading bytes; valid until the iterator yields the next one."""

    name: str
    file: BufferedIOBase


def stem(name: str) -> str:
    """The file name without suffixes: `b` for `a/b.txt` and for `a/b.txt.gz`."""
    base = PurePosixPath(name).name
    for suffix in _OPENERS:
        base = base.removesuffix(suffix)
    return PurePosixPath(base).stem


def matches(input: str) -> list[Path]:
    """The files of a path (file or folder) or a glob, sorted by path.

    Hidden files and folders are ignored in a folder.

    Raises:
      InputError: no file matches.
    """
    path = Path(input)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = (p for p in path.rglob("*") if not _is_hidden(p.relative_to(path)))
    else:
        found = Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))
    files = sorted(file for file in found if file.is_file())
    if not files:
        raise InputError(
            "no input file",
            where=f"--input {input}",
            expected="a file, a folder with files or a glob that matches some",
            found="an empty folder" if path.is_dir() else "no match",
        )
    return files


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def files(input: str, suffix: Suffix = "") -> list[Path]:
    """The `matches` that are archives, have the suffix, or are `input` itself.

    Raises:
      InputError: no file matches.
    """
    named = Path(input)
    found = [
        path
        for path in matches(input)
        if path.name.endswith(_ARCHIVES) or path == named or _is_named(path.name, suffix)
    ]
    if not found:
        raise InputError("no input file", where=f"--input {input}", expected=_wanted(suffix))
    return found


def streams(input: str, suffix: Suffix = "") -> Iterator[Stream]:
    """Opens the files of `input`; decompresses them, and streams the members of archives.

    Archives are never extracted to disk, so their member names cannot be used for path traversal.

    Args:
      input: see `matches`.
      suffix: ignores files of folders, globs and archives whose name (without .gz, .xz, .bz2) has
        another suffix.

    Raises:
      InputError: no file matches, or compressed bytes are damaged or cut short.
    """
    count = 0
    for path in files(input, suffix):
        with naming_damage(path):
            found = _members(path, suffix) if path.name.endswith(_ARCHIVES) else _single(path)
            for stream in found:
                count += 1
                yield stream
    if not count:
        raise InputError("no input file", where=f"--input {input}", expected=_wanted(suffix))


@contextmanager
def naming_damage(where: object) -> Iterator[None]:
    """Converts the errors of decompressors into an InputError that names the file.

    Use it also around the code that reads a stream of `streams`.
    """
    try:
        yield
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a real I/O error; bz2 and gzip report damage as an OSError without errno
        raise InputError(
            "compressed file is damaged or cut short",
            where=where,
            found=f"{type(error).__name__}: {error}",
            fix="download the file again",
        ) from error


def _single(path: Path) -> Iterator[Stream]:
    with _opened(path) as file:
        yield Stream(str(path), file)


def _members(path: Path, suffix: Suffix) -> Iterator[Stream]:
    # tarfile accepts an archive that is cut between two members. So the file is decompressed here
    # and read to its end, where the decompressor detects the cut.
    with _opened(path) as packed:
        with tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if isinstance(file, BufferedIOBase) and _is_named(member.name, suffix):
                    yield Stream(f"{path}!{member.name}", file)
                archive.members.clear()  # type: ignore[attr-defined]  # or it keeps one entry per member
        while packed.read(1 << 20):
            pass


def _opened(path: Path) -> BufferedIOBase:
    opener = _OPENERS.get(path.suffix)
    return opener(path, "rb") if opener else path.open("rb")


def _wanted(suffix: Suffix) -> str:
    endings = (suffix,) if isinstance(suffix, str) else suffix
    return "files " + " or ".join(f"*{ending}" for ending in endings)


def _is_named(name: str, suffix: Suffix) -> bool:
    for packed in _OPENERS:
        name = name.removesuffix(packed)
    return name.endswith(suffix)
