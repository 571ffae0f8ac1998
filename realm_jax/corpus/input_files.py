"""Opens the files of `--input` one after the other as byte streams."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader, FileIO
from pathlib import Path, PurePosixPath
from typing import Any

from realm_jax.corpus import containers, encodings
from realm_jax.corpus.containers import Member
from realm_jax.corpus.file_tree import matches
from realm_jax.corpus.glob_pattern import is_hidden
from realm_jax.corpus.tally import Skipped, Tally
from realm_jax.errors import InputError

_TARS = (".tar", ".tar.xz", ".txz", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.zst", ".tzst")
_ARCHIVES = (".zip", *_TARS)
_PACKED = (".gz", ".xz", ".bz2", ".zst")

STANDARD_INPUT = "standard_input"  # name of the temporary file with its copy

Suffix = str | tuple[str, ...]  # one suffix of file names, or several; or whole names


@dataclass(frozen=True)
class Stream:
    """A named file opened for reading bytes; valid until the iterator yields the next one."""

    name: str
    file: BufferedIOBase

    @contextmanager
    def seekable(self) -> Iterator[Any]:
        """The file for readers that need its end first; copied to a temporary file if packed."""
        if isinstance(getattr(self.file, "raw", None), FileIO):
            yield self.file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(self.file, copy, 1 << 20)
            copy.seek(0)
            yield copy


@dataclass(frozen=True)
class Wanted:
    """Which files of folders, globs and archives are opened, and how.

    Attributes:
      suffix: of file names without .gz, .xz, .bz2 or .zst, in any case; "" for all names. One
        without a dot is a whole name.
      text: whether the files are text, which is converted to UTF-8.
      encoding: of the text; None: detected for each file.
    """

    suffix: Suffix = ""
    text: bool = True
    encoding: str | None = None

    def takes(self, name: str) -> bool:
        """Whether a file of this name is opened."""
        base = _unpacked(PurePosixPath(name).name)
        endings = (self.suffix,) if isinstance(self.suffix, str) else self.suffix
        return any(
            base.endswith(one) if one.startswith(".") else one in ("", base) for one in endings
        )

    def __str__(self) -> str:
        endings = (self.suffix,) if isinstance(self.suffix, str) else self.suffix
        return "files " + " or ".join(f"*{e}" if e.startswith(".") else e or "*" for e in endings)


def stem(name: str) -> str:
    """The file name without suffixes: `b` for `a/b.txt` and for `a/b.txt.gz`."""
    base = PurePosixPath(name).name
    if base.lower().endswith(_PACKED):
        base = base.rpartition(".")[0]
    return PurePosixPath(base).stem


def file_id(name: str) -> str:
    """Id of the document that is a whole file: its path as it was given.

    Returns:
      "" for standard input, and for a path that is not UTF-8.
    """
    outer = PurePosixPath(name.partition("!/")[0]).name
    is_utf8 = name == name.encode(errors="replace").decode()
    return str(PurePosixPath(name)) if is_utf8 and outer != STANDARD_INPUT else ""


def _unpacked(name: str) -> str:
    name = name.lower()
    return name.rpartition(".")[0] if name.endswith(_PACKED) else name


def is_archive(path: Path) -> bool:
    """Whether a file is named as an archive."""
    return path.name.lower().endswith(_ARCHIVES)


def files(input: str, wanted: Wanted, skipped: Tally | None = None) -> list[Path]:
    """The `matches` that are archives, have the suffix, or are `input` itself.

    Raises:
      InputError: no file matches.
    """
    named, skipped = Path(input), Tally() if skipped is None else skipped
    found = []
    for path in matches(input, skipped):
        if is_archive(path) or path == named or wanted.takes(path.name):
            found.append(path)
        else:
            skipped.add("other_extension", str(path))
    if not found:
        raise _none(input, wanted, skipped)
    return found


def streams(
    input: str, wanted: Wanted, skipped: Skipped | None = None, *, required: bool = True
) -> Iterator[Stream]:
    """Opens the files of `input`; decompresses them, and streams the members of archives.

    Compression is recognised by the first bytes. Archives are never extracted to disk, so their
    member names cannot be used for path traversal.

    Args:
      input: see `matches`.
      wanted: which files, and how.
      skipped: counts the files and members that are left out, by reason.
      required: whether it is an error if all files are left out.

    Raises:
      InputError: no file matches; compressed bytes are damaged or cut short; or the file that
        `input` names is not text.
    """
    skipped = Skipped() if skipped is None else skipped
    count = 0
    for path in files(input, wanted, skipped):
        with naming_damage(path):
            for name, file in _contents(path, wanted, skipped):
                stream = _opened(name, file, wanted, skipped)
                if stream is not None:
                    count += 1
                    yield stream
    if required and not count:
        raise _none(input, wanted, skipped)


@contextmanager
def naming_damage(where: object) -> Iterator[None]:
    """Converts the errors of decompressors into an InputError that names the file.

    Use it also around the code that reads a stream of `streams`.
    """
    try:
        yield
    except (*containers.DAMAGE, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # a real I/O error; zip seeks to invalid positions, bz2 and gzip give no errno
        raise InputError(
            "compressed file is damaged or cut short",
            where=where,
            found=f"{type(error).__name__}: {error}",
            fix="download the file again",
        ) from error


def _contents(path: Path, wanted: Wanted, skipped: Skipped) -> Iterator[Member]:
    """The file itself, or the members of an archive that are not hidden and have the suffix."""
    with BufferedReader(FileIO(path), encodings.SAMPLE) as raw:
        _, head = containers.peek(raw)
        is_other = containers.other_kind(head) is not None
        if containers.is_zip(head) and not is_other:
            yield from _named(path, containers.zip_members(path, skipped), wanted, skipped)
            return
        content, head = containers.decompressed(raw) if not is_other else containers.peek(raw)
        if containers.is_tar(head) or (is_archive(path) and not is_other):
            members = containers.tar_members(content, skipped, str(path))
            yield from _named(path, members, wanted, skipped)
        else:
            yield str(path), content


def _named(
    path: Path, members: Iterator[Member], wanted: Wanted, skipped: Skipped
) -> Iterator[Member]:
    for member, file in members:
        name = f"{path}!/{member}"
        if is_hidden(PurePosixPath(member)):
            skipped.add("hidden", name)
        elif wanted.takes(member):
            yield name, file
        else:
            skipped.add("other_extension", name)


def _opened(name: str, file: Any, wanted: Wanted, skipped: Skipped) -> Stream | None:
    """The decompressed content as UTF-8; None, counted, if it is not text."""
    content, head = containers.decompressed(file)
    if not wanted.text:
        return Stream(name, content)
    other = containers.other_kind(head)
    if other or containers.is_zip(head) or containers.is_tar(head):
        kind, reads = other or ("an archive inside an archive", "extract it first")
        skipped.add("not_text", f"{name} is {kind}" + (f" ({reads})" if reads else ""))
        return None
    sample = content.peek(encodings.SAMPLE)
    encoding = wanted.encoding or encodings.detect(sample)
    if encoding is None:
        skipped.add("not_text", f"{name} is binary data, or of an encoding that is not recognised")
        return None
    if encoding in ("utf-8", "ascii"):
        return Stream(name, content)
    if wanted.encoding is None:
        skipped.decoded.add(encoding, name)
    return Stream(name, encodings.as_utf8(content, encoding))


def _none(input: str, wanted: Wanted, skipped: Tally) -> InputError:
    fix = None
    if skipped["not_text"]:
        fix = "convert or extract it as the name of its kind says, or give --encoding=NAME"
    return InputError(
        "no input file",
        where=f"--input {input}",
        expected=str(wanted),
        found="; ".join(map(str.strip, skipped.lines())) or None,
        fix=fix,
    )
