"""Documents from files: WikiExtractor output, JSON lines, plain text, prepared TFDS datasets.

Every reader is a generator, so that memory does not grow with the corpus. What users expect a
reader to step over is counted in `skipped` by reason; what they do not is an `InputError` that
names file and line.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from realm_jax.corpus.sources import damage_named, stem, streams
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
# JSON can spell half of a surrogate pair, which no UTF-8 file can hold.
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_HEADER = re.compile(r'<doc id="[^"]*"(?: \w+="[^"]*")*? title="(.*)">\s*')


def read(format: str, input: str, skipped: Skipped) -> Iterator[Document]:
    """The documents of `input` in a fixed order: files by path, then as they stand in the file.

    Args:
      format: a key of `READERS`, or `tfds`.
      input: a file, a folder, a glob or an archive of such files; for `tfds` the folder of a
        prepared dataset (`DATA_DIR/NAME/VERSION`).
      skipped: counts documents and files left out, by reason; filled while iterating.

    Raises:
      InputError: unknown format, nothing matches `input`, a damaged archive or a malformed file.
    """
    if format == "tfds":
        from realm_jax.corpus.tfds_builder import read_tfds

        documents = read_tfds(input)
    elif format in READERS:
        documents = _from_files(format, input, skipped)
    else:
        raise InputError(
            "unknown corpus format",
            where="--format",
            expected=" or ".join([*READERS, "tfds"]),
            found=repr(format),
        )
    return _complete(documents, skipped)


def _from_files(format: str, input: str, skipped: Skipped) -> Iterator[Document]:
    for stream in streams(input, ".txt" if format == "text" else ""):
        with damage_named(stream.name):
            yield from READERS[format](stream.name, stream.file, skipped)


def _complete(documents: Iterator[Document], skipped: Skipped) -> Iterator[Document]:
    for document in documents:
        title, body = document.title.strip(), document.body.strip()
        if not title:
            skipped["empty_title"] += 1
        elif not body:
            skipped["empty_body"] += 1
        elif _HALF_CHARACTER.search(title) or _HALF_CHARACTER.search(body):
            skipped["not_unicode"] += 1
        else:
            yield Document(title, body, document.where)


def read_wikiextractor(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """`<doc id url title>` … `</doc>` blocks, or the lines of WikiExtractor's `--json`."""
    numbered = enumerate(file, 1)
    for number, line in numbered:
        where = f"{name}:{number}"
        if line.startswith(b"<doc "):
            text = _decode(line + _until_end(numbered, where), skipped)
            if text is None:
                continue
            header, _, body = text.partition("\n")
            match = _HEADER.fullmatch(header)
            if match is None:
                raise InputError(
                    "malformed WikiExtractor header",
                    where=where,
                    expected='<doc id="…" url="…" title="…">',
                    found=header[:80],
                )
            yield from _article(match[1], body, where, skipped)
        elif line.startswith(b"{"):
            text = _decode(line, skipped)
            if text is not None:
                yield from _article(*_json_document(text, where), where, skipped)
        elif line.strip():
            raise InputError(
                "not WikiExtractor output",
                where=where,
                expected='a line that begins with <doc id="…" …> or {"id": …',
                found=repr(line[:60].decode("utf-8", "replace")),
                fix="give another --format, or an --input that matches only WikiExtractor files",
            )


def _until_end(numbered: Iterator[tuple[int, bytes]], where: str) -> bytes:
    lines: list[bytes] = []
    for _, line in numbered:
        if line.rstrip() == b"</doc>":
            return b"".join(lines)
        lines.append(line)
    raise InputError(
        "article is cut short",
        where=where,
        expected="</doc> before the end of the file",
        found="end of file",
    )


def _article(title: str, body: str, where: str, skipped: Skipped) -> Iterator[Document]:
    title, body = html.unescape(title).strip(), html.unescape(body).strip()
    for reason, pattern in _LISTING.items():
        if pattern.match(title):
            skipped[reason] += 1
            return
    first, _, rest = body.partition("\n")
    yield Document(title, rest if first.strip() == title else body, where)


def read_jsonl(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """One JSON object per line with the strings `title` and `text`."""
    for number, line in enumerate(file, 1):
        text = _decode(line, skipped)
        if text is not None and text.strip():
            where = f"{name}:{number}"
            yield Document(*_json_document(text, where), where)


def _json_document(line: str, where: str) -> tuple[str, str]:
    try:
        fields = json.loads(line)
        title, text = fields["title"], fields["text"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise _not_a_document(where, f"{type(error).__name__}: {error}") from error
    if not (isinstance(title, str) and isinstance(text, str)):
        raise _not_a_document(where, f"{type(title).__name__} and {type(text).__name__}")
    return title, text


def _not_a_document(where: str, found: str) -> InputError:
    return InputError(
        "malformed JSON line",
        where=where,
        expected='{"title": "…", "text": "…"} on one line',
        found=found,
    )


def read_text(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """One document per file: the title is the file's name without its suffix."""
    body = _decode(file.read(), skipped)
    if body is not None:
        yield Document(stem(name), body, name)


def _decode(content: bytes, skipped: Skipped) -> str | None:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        skipped["not_utf8"] += 1
        return None


Reader = Callable[[str, BufferedIOBase, Skipped], Iterator[Document]]
READERS: dict[str, Reader] = {
    "wikiextractor": read_wikiextractor,
    "jsonl": read_jsonl,
    "text": read_text,
}
