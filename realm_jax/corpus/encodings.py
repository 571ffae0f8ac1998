"""Text of other encodings as a stream of UTF-8, so that every reader handles UTF-8 only.

The encoding is stated, or detected from the first bytes of a file: a byte-order mark, else UTF-8 if
most of the lines that are not ASCII are valid, else what charset-normalizer finds in these lines
and in those that declare an encoding.
"""

import codecs
import io
import re
from typing import Any

from charset_normalizer import from_bytes

from realm_jax.errors import InputError

SAMPLE = 1 << 16  # bytes that detection sees
# If a short text fits several encodings equally well, the most frequent one is taken.
_FREQUENT = ("cp1252", "cp1251", "cp1250", "iso8859_2", "cp1254")
_DECLARATION = re.compile(rb"charset|<\?xml[^>]*encoding=", re.IGNORECASE)
_LATIN_1 = re.compile(rb"(?:iso[-_]?8859|latin)[-_]?1\b", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def check_encoding(name: str) -> str:
    """Returns Python's name of a text encoding.

    Raises:
      InputError: Python knows no such text encoding.
    """
    try:
        codec = codecs.lookup(name)
        b"a".decode(codec.name)  # refuses codecs from bytes to bytes, such as "zlib"
    except (LookupError, ValueError) as error:
        raise InputError(
            "unknown encoding",
            where=f"--encoding {name}",
            expected="a text encoding of Python, such as cp1252, shift_jis or utf-16",
            found=str(error),
        ) from error
    return codec.name


def detect(sample: bytes) -> str | None:
    """The encoding of a file that begins with `sample`; None if it is unlikely to be text."""
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        return _without_mark(sample)
    lines = sample.split(b"\n")
    others = [line for line in lines if not line.isascii()]
    valid = sum(map(_is_utf8, others))
    # One damaged line of a UTF-8 file must not turn all others into other characters.
    if 2 * valid >= len(others):
        return "utf-8"
    declared = [line for line in lines if line.isascii() and _DECLARATION.search(line)]
    # Pages that declare Latin-1 are read as cp1252, its superset, as browsers do.
    found = from_bytes(_LATIN_1.sub(b"cp1252", b"\n".join(declared + others)))
    best = found.best()
    if best is None:
        return None
    tied = {
        name
        for one in found
        if (one.chaos, one.coherence) == (best.chaos, best.coherence)
        for name in one.could_be_from_charset
    }
    return next((name for name in _FREQUENT if name in tied), best.encoding)


def _without_mark(sample: bytes) -> str | None:
    """UTF-16 without a mark: the high bytes of most Latin letters are 0."""
    for encoding, high in (("utf-16-le", 1), ("utf-16-be", 0)):
        highs, lows = sample[high::2], sample[1 - high :: 2]
        if highs.count(0) > len(highs) / 2 and not lows.count(0):
            return encoding
    return None


def _is_utf8(line: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(line)  # the last one may end in a character
    except UnicodeDecodeError:
        return False
    return True


def as_utf8(file: io.BufferedIOBase, encoding: str) -> io.BufferedIOBase:
    """A stream of the same text in UTF-8; bytes that cannot be decoded are invalid there too."""
    return io.BufferedReader(_Transcoded(file, encoding), 1 << 16)


class _Transcoded(io.RawIOBase):
    def __init__(self, file: io.BufferedIOBase, encoding: str):
        codecs.register_error("realm_invalid", _keep_invalid)
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("realm_invalid")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = self._file.read(1 << 16)
            text = self._decoder.decode(chunk, final=not chunk)
            self._rest = text.encode("utf-8", "surrogateescape")
            if not chunk:
                break
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _keep_invalid(error: UnicodeError) -> tuple[str, int]:
    """Replaces bytes that cannot be decoded by a byte that UTF-8 forbids."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end
