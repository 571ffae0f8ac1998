"""What every reader yields and counts, and how it takes apart the bytes it is given."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from realm_jax.errors import InputError


@dataclass(frozen=True)
class Document:
    """A source article: title and body as text, and the file (and line) it came from."""

    title: str
    body: str
    where: str


Skipped = Counter[str]

# REALM section 4 and released corpus code: pages that list others are no knowledge.
_LISTING = {
    "list_page": re.compile(r"List of .+"),
    "index_page": re.compile(r"Index of .+"),
    "outline_page": re.compile(r"Outline of .+"),
    "disambiguation_page": re.compile(r".*\(disambiguation\).*"),
}


def is_listing(title: str, skipped: Skipped) -> bool:
    """Whether a Wikipedia page only lists others, by its title; counted if so."""
    for reason, pattern in _LISTING.items():
        if pattern.match(title):
            skipped[reason] += 1
            return True
    return False


def decode(content: bytes, skipped: Skipped) -> str | None:
    """UTF-8 text; None, and counted as `not_utf8`, if it is not."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        skipped["not_utf8"] += 1
        return None


def lines_until(numbered: Iterator[tuple[int, bytes]], end: bytes, where: str) -> bytes:
    """The lines before the one that is `end`; that one is taken too.

    Raises:
      InputError: the file ends before.
    """
    lines: list[bytes] = []
    for _, line in numbered:
        if line.rstrip() == end:
            return b"".join(lines)
        lines.append(line)
    raise InputError(
        "article is cut short",
        where=where,
        expected=f"{end.decode()} before the end of the file",
        found="end of file",
    )


def json_texts(line: str, where: str, *names: tuple[str, ...]) -> list[str]:
    """Texts of a JSON object on one line; `null` is an empty one.

    Args:
      line: the JSON.
      where: file and line, for errors.
      names: for each text the keys it may have; the first one present counts.

    Raises:
      InputError: not a JSON object, none of the keys, or a value that is no text.
    """
    expected = ", ".join(f'"{" or ".join(keys)}": "…"' for keys in names)
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise _malformed(where, expected, f"{type(error).__name__}: {error}") from error
    if not isinstance(fields, dict):
        raise _malformed(where, expected, type(fields).__name__)
    return [_text(fields, keys, where, expected) for keys in names]


def _text(fields: dict[str, Any], keys: tuple[str, ...], where: str, expected: str) -> str:
    present = [key for key in keys if key in fields]
    if not present:
        raise _malformed(where, expected, f"no {' or '.join(keys)} but {', '.join(fields)}")
    value = fields[present[0]]
    if value is not None and not isinstance(value, str):
        raise _malformed(where, expected, f"{present[0]!r} is a {type(value).__name__}")
    return value or ""


def _malformed(where: str, expected: str, found: str) -> InputError:
    return InputError(
        "malformed JSON line",
        where=where,
        expected=f"{{{expected}}} on one line",
        found=found,
    )
