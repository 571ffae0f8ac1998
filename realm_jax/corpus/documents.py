"""The document type that all readers yield, and shared functions to decode their input."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from realm_jax.errors import InputError


@dataclass(frozen=True)
class Document:
    """A source article: title, body, and the file (and line) from which it was read."""

    title: str
    body: str
    where: str


Skipped = Counter[str]

# Skipped as in the released code: pages that only list other pages.
_LISTING = {
    "list_page": re.compile(r"List of .+"),
    "index_page": re.compile(r"Index of .+"),
    "outline_page": re.compile(r"Outline of .+"),
    "disambiguation_page": re.compile(r".*\(disambiguation\).*"),
}


def is_listing(title: str, skipped: Skipped) -> bool:
    """Whether a Wikipedia page only lists other pages, by its title; counts it as skipped."""
    for reason, pattern in _LISTING.items():
        if pattern.match(title):
            skipped[reason] += 1
            return True
    return False


def decode(content: bytes, skipped: Skipped) -> str | None:
    """Decodes UTF-8; if that fails, returns None and counts `not_utf8` as skipped."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        skipped["not_utf8"] += 1
        return None


def lines_until(numbered: Iterator[tuple[int, bytes]], end: bytes, where: str) -> bytes:
    """Reads lines up to the line `end`, which is not part of the result.

    Raises:
      InputError: the file ends before that line.
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
    """Reads string fields of a JSON object on one line; `null` becomes an empty string.

    Args:
      line: the JSON.
      where: file and line, for errors.
      names: for each field its possible keys; the first one that is present is used.

    Raises:
      InputError: the line is not a JSON object, a field is missing, or a value is not a string.
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
