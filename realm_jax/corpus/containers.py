"""What a file is, by its first bytes; decompression, and the members of archives as streams."""

import bz2
import gzip
import lzma
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any, cast

from realm_jax.corpus import encodings
from realm_jax.corpus.tally import Tally

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Member = tuple[str, BufferedIOBase]  # name and bytes
HEAD = 512  # bytes that identify a file

DAMAGE = (tarfile.TarError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, zstd.ZstdError)
_COMPRESSED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,  # and a block, see `decompressed`
    b"\xfd7zXZ\0": lzma.open,
    b"\x28\xb5\x2f\xfd": zstd.open,
}
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a text may begin with BZh
ZIP = b"PK\x03\x04"
_TAR_AT, _TAR = 257, b"ustar"
# (first bytes, what it is, what reads it)
_OTHERS = (
    (b"PAR1", "a Parquet file", "--format=parquet"),
    (b"%PDF", "a PDF file", "--format=pdf"),
    (b"ARROW1\0\0", "an Arrow file", "datasets: Dataset.from_file(FILE).to_parquet(OTHER)"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "datasets: Dataset.from_file(FILE).to_parquet(OTHER)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "7z x FILE"),
    (b"Rar!\x1a\x07", "a RAR archive", "unrar x FILE"),
    (b"\x04\x22\x4d\x18", "an LZ4 file", "lz4 -d FILE"),
    (b"\xff\x06\0\0sNaPpY", "a Snappy file", "snzip -d FILE"),
    (b"\x1f\x9d", "a file of compress (.Z)", "gunzip FILE"),
    (b"SQLite format 3\0", "an SQLite database", "sqlite3 -csv -header FILE 'select …' > x.csv"),
    (b"\x89HDF", "an HDF5 file", None),
    (b"Obj\x01", "an Avro file", None),
    (b"\xd0\xcf\x11\xe0", "an old Microsoft Office file", "libreoffice --convert-to docx FILE"),
    (b"{\\rtf", "a rich text file", "libreoffice --convert-to docx FILE"),
    (b"\x93NUMPY", "a NumPy array", None),
    (b"\x80\x03", "a Python pickle", None),
    (b"\x80\x04", "a Python pickle", None),
    (b"\x80\x05", "a Python pickle", None),
    (b"\x89PNG", "a PNG image", None),
    (b"\xff\xd8\xff", "a JPEG image", None),
    (b"GIF87a", "a GIF image", None),
    (b"GIF89a", "a GIF image", None),
    (b"\x7fELF", "a program", None),
)
_ZIPPED = (
    (b"word/", "a Word file (.docx)", "--format=docx"),
    (b"xl/", "an Excel file (.xlsx)", "save it as CSV and use --format=csv"),
    (b"ppt/", "a PowerPoint file (.pptx)", "save it as PDF and use --format=pdf"),
    (b"mimetypeapplication/epub", "an EPUB book", "extract its pages and use --format=html"),
    (
        b"mimetypeapplication/vnd.oasis",
        "an OpenDocument file",
        "libreoffice --convert-to docx FILE",
    ),
)
_OFFICE = b"[Content_Types].xml"


def peek(file: BufferedIOBase) -> tuple[BufferedReader, bytes]:
    """A buffered reader of `file`, and the first bytes, which it still returns."""
    buffered = (
        file
        if isinstance(file, BufferedReader)
        else BufferedReader(cast(Any, file), encodings.SAMPLE)
    )
    return buffered, buffered.peek(HEAD)[:HEAD]


def other_kind(head: bytes) -> tuple[str, str | None] | None:
    """What a file is if it is not text, and what reads it; None if it may be text."""
    for first, kind, reads in _OTHERS:
        if head.startswith(first):
            return kind, reads
    if head.startswith(ZIP):
        for inside, kind, reads in _ZIPPED:
            if inside in head:
                return kind, reads
        if _OFFICE in head:
            return "a Microsoft Office file", "--format=docx for a Word file"
    return None


def is_zip(head: bytes) -> bool:
    """Whether a file with these first bytes is a zip archive of other files."""
    return head.startswith(ZIP) or head.startswith(b"PK\x05\x06")


def is_tar(head: bytes) -> bool:
    """Whether a file with these first bytes is a tar archive."""
    return head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR


def decompressed(file: BufferedIOBase) -> tuple[BufferedReader, bytes]:
    """The content of a file, decompressed if its bytes are compressed; and the first bytes."""
    content, head = peek(file)
    for first, opener in _COMPRESSED.items():
        if head.startswith(first) and not (first == b"BZh" and head[4:10] not in _BZIP2_BLOCKS):
            return peek(opener(content, "rb"))
    return content, head


def tar_members(file: BufferedIOBase, skipped: Tally, name: str) -> Iterator[Member]:
    """Yields (member, its bytes) of a tar archive that is read once from start to end."""
    # tarfile accepts an archive that is cut between two members. So the stream is read to its end,
    # where the decompressor detects the cut.
    with tarfile.open(fileobj=cast(Any, file), mode="r|") as archive:
        for member in archive:
            if member.islnk() or member.issym():
                skipped.add("link_in_archive", f"{name}!/{member.name}")
            opened = archive.extractfile(member) if member.isreg() else None
            if opened is not None:
                # Its own buffer is smaller than the sample that detection of the encoding needs.
                yield member.name, BufferedReader(cast(Any, opened), encodings.SAMPLE)
            archive.members.clear()  # type: ignore[attr-defined]  # or it keeps one entry per member
    while file.read(1 << 20):
        pass


def zip_members(path: Path, skipped: Tally) -> Iterator[Member]:
    """Yields (member, its bytes) of a zip archive, in the order of its directory."""
    try:
        archive = zipfile.ZipFile(path)
    except (NotImplementedError, ValueError, LookupError, struct.error) as error:
        raise zipfile.BadZipFile(f"{type(error).__name__}: {error}") from error
    with archive:
        for member in archive.infolist():
            if member.filename.endswith("/") or not member.filename:
                continue
            try:
                opened = archive.open(member)
            except NotImplementedError:
                skipped.add("unknown_compression", f"{path}!/{member.filename}")
            except RuntimeError:  # zipfile asks for a password
                skipped.add("encrypted", f"{path}!/{member.filename}")
            else:
                with opened as file:
                    yield member.filename, cast(BufferedIOBase, file)
