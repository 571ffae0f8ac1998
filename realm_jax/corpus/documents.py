"""The document type that all readers yield, and shared functions to decode their input."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from realm_jax.corpus import wikitext
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

LONGEST_LINE = 1 << 28  # bytes of a line, which is held in memory


@dataclass(frozen=True)
class Document:
    """A source article.

    Attributes:
      title: may be empty.
      body: its text, or its source if `markup` is not "".
      where: the file (and line) from which it was read.
      id: as its source gives it (`_id`, `id`, or the path of a file that is one document); "" if
        there is none.
      markup: "wikitext", or "" for plain text.
      unshown: names of namespaces, in lower case, whose links a page of this wiki does not show,
        such as "kategorie"; used with wikitext.
    """

    title: str
    body: str
    where: str
    id: str = ""
    markup: str = ""
    unshown: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The body as plain text; workers compute it, because markup takes long to convert."""
        if self.markup == "wikitext":
            return wikitext.plain_text(self.body, self.unshown)
        return self.body


@dataclass(frozen=True)
class Columns:
    """Names of the fields of a document in records; "" for the usual names."""

    title: str = ""
    text: str = ""
    id: str = ""


# Skipped as in the released code: pages that only list other pages.
_LISTING = {
    "list_page": re.compile(r"List of .+"),
    "index_page": re.compile(r"Index of .+"),
    "outline_page": re.compile(r"Outline of .+"),
    "disambiguation_page": re.compile(r".*\(disambiguation\).*"),
}


def is_listing(title: str, where: str, skipped: Skipped) -> bool:
    """Whether a Wikipedia page only lists other pages, by its title; counts it as skipped."""
    for reason, pattern in _LISTING.items():
        if pattern.match(title):
            skipped.add(reason, f"{title} ({where})")
            return True
    return False


def decode(content: bytes, where: str, skipped: Skipped) -> str | None:
    """Decodes UTF-8; if that fails, returns None and counts `not_utf8` as skipped."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        skipped.add("not_utf8", where)
        return None


def numbered_lines(name: str, file: BufferedIOBase) -> Iterator[tuple[str, bytes]]:
    """Yields (file:line, line) of a stream.

    Raises:
      InputError: a line is longer than `LONGEST_LINE`.
    """
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InputError(
                "line is too long",
                where=f"{name}:{number}",
                expected=f"at most {LONGEST_LINE:,} bytes",
            )
        yield f"{name}:{number}", line


def text_lines(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[tuple[str, str]]:
    """Yields (file:line, text) of the lines that are not blank; counts those that are not UTF-8."""
    for where, line in numbered_lines(name, file):
        text = decode(line, where, skipped)
        if text is not None and text.strip():
            yield where, text


def lines_until(numbered: Iterator[tuple[str, bytes]], end: bytes, where: str) -> bytes:
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


def json_document(line: str, where: str, columns: Columns) -> Document:
    """Reads a document from a JSON object on one line; `null` is an empty string.

    Title and id are optional. By default the text is `text` or `maintext`, and the id `_id` or
    `id`: a string or a whole number.

    Raises:
      InputError: the line is not a JSON object, it has no text, or a value has another type.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _malformed(where, _EXPECTED, f"{type(error).__name__}: {error}") from error
    if not isinstance(fields, dict):
        raise _malformed(where, _EXPECTED, type(fields).__name__)
    optional = [name for name in (columns.title, columns.id) if name]  # lines may lack them
    names = chosen_columns(list(dict.fromkeys([*fields, *optional])), columns, where)
    values = [None if name is None else fields.get(name) for name in names]
    for name, value, is_id in zip(names, values, (False, False, True), strict=True):
        number = is_id and isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not isinstance(value, str) and not number:
            raise _malformed(where, _EXPECTED, f"{name!r} is a {type(value).__name__}")
    title, text, id = ("" if value is None else str(value) for value in values)
    return Document(title, text, where, id)


def chosen_columns(
    present: list[str], columns: Columns, where: str
) -> tuple[str | None, str, str | None]:
    """The names of title, text and id among the names of a record or a table.

    Raises:
      InputError: there is no text, a name that `columns` gives is missing, or a chosen name is
        that of several columns.
    """
    found = []
    usual = (("title",), ("maintext", "text"), ("_id", "id"))
    for given, names in zip((columns.title, columns.text, columns.id), usual, strict=True):
        candidates = (given,) if given else names
        found.append(next((name for name in candidates if name in present), None))
        if given and given not in present:
            raise _no_column(given, present, where)
    title, text, id = found
    if text is None:
        raise _no_column("text", present, where)
    for name in (title, text, id):
        if name is not None and present.count(name) > 1:
            raise InputError(
                f"several columns have the name {name!r}",
                where=where,
                expected="different names",
                found=", ".join(present)[:300],
                fix="rename one, or name another: --columns=text=BODY,title=HEADLINE,id=KEY",
            )
    return title, text, id


def _no_column(name: str, present: list[str], where: str) -> InputError:
    return InputError(
        f"no field {name!r}",
        where=where,
        expected="text, and optionally title and _id or id",
        found=f"no {name} but {', '.join(present)}"[:300],
        fix="name the fields: --columns=text=BODY,title=HEADLINE,id=KEY",
    )


_EXPECTED = '{"text": "…", and optionally "title" and "_id" or "id"}'


def _malformed(where: str, expected: str, found: str) -> InputError:
    return InputError(
        "malformed JSON line", where=where, expected=f"{expected} on one line", found=found[:200]
    )


def wrong_line(problem: str, where: str, expected: str, line: bytes, fix: str) -> InputError:
    """The error about a line of a file of another format; shows how it begins."""
    found = repr(line[:60].decode("utf-8", "replace"))
    return InputError(problem, where=where, expected=expected, found=found, fix=fix)
