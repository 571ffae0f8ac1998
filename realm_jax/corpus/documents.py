"""The document type that all readers yield, and shared functions to decode their input."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from realm_jax.errors import InputError


@dataclass(frozen=True)
class Document:
    """A source article.

    Attributes:
      title: may be empty.
      body: its text.
      where: the file (and line) from which it was read.
      id: as its source gives it (`_id`, `id`); "" if there is none.
    """

    title: str
    body: str
    where: str
    id: str = ""


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


def json_document(
    line: str, where: str, *, title: str = "title", text: tuple[str, ...] = ("text",)
) -> Document:
    """Reads a document from a JSON object on one line; `null` is an empty string.

    Title and id are optional. The id is `_id`, else `id`: a string or a whole number.

    Args:
      line: the JSON.
      where: file and line, for errors.
      title: key of the title.
      text: possible keys of the body; the first one that is present is used.

    Raises:
      InputError: the line is not a JSON object, it has no text, or a value has another type.
    """
    expected = f'{{"{" or ".join(text)}": "…", and optionally "{title}" and "_id" or "id"}}'
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _malformed(where, expected, f"{type(error).__name__}: {error}") from error
    if not isinstance(fields, dict):
        raise _malformed(where, expected, type(fields).__name__)
    present = [key for key in text if key in fields]
    if not present:
        raise _malformed(where, expected, f"no {' or '.join(text)} but {', '.join(fields)}")
    id_key = "_id" if "_id" in fields else "id"
    values = {key: fields.get(key) for key in (title, present[0], id_key)}
    for key, value in values.items():
        number = key == id_key and isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not isinstance(value, str) and not number:
            raise _malformed(where, expected, f"{key!r} is a {type(value).__name__}")
    texts = ["" if value is None else str(value) for value in values.values()]
    return Document(texts[0], texts[1], where, texts[2])


def _malformed(where: str, expected: str, found: str) -> InputError:
    return InputError(
        "malformed JSON line", where=where, expected=f"{expected} on one line", found=found[:200]
    )
