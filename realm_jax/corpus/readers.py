"""Readers of documents: WikiExtractor output, JSON lines, plain text, news, TFDS datasets.

Every reader is a generator, so memory does not grow with the corpus. Skipped documents are counted
in `skipped` by reason. Malformed input raises an `InputError` that names file and line.
"""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BufferedIOBase

from realm_jax.corpus.documents import (
    Document,
    Skipped,
    decode,
    is_listing,
    json_document,
    lines_until,
)
from realm_jax.corpus.input_files import Suffix, naming_damage, stem, streams
from realm_jax.corpus.news_readers import read_cc_news, read_reuters
from realm_jax.errors import InputError

# JSON escapes can encode an unpaired surrogate, which UTF-8 cannot represent.
_SURROGATE = re.compile("[\ud800-\udfff]")
SUFFIXES: dict[str, Suffix] = {
    "text": (".txt", ".md"),
    "reuters": ".sgm",
    "beir": "corpus.jsonl",
}  # other files of a folder are ignored
_HEADER = re.compile(r'<doc id="([^"]*)"(?: \w+="[^"]*")*? title="(.*)">\s*')


def read(format: str, input: str, skipped: Skipped) -> Iterator[Document]:
    """Reads the documents of `input` in a fixed order: files by path, then as in the file.

    Args:
      format: a key of `READERS`, or `tfds`.
      input: a file, a folder, a glob or an archive of such files; for `tfds` see `read_tfds`.
      skipped: counter of skipped documents by reason; updated during iteration.

    Raises:
      InputError: the format is unknown, no file matches, or a file is damaged or malformed.
    """
    if format == "tfds":
        from realm_jax.corpus.tfds_reader import read_tfds

        documents = read_tfds(input, skipped)
    elif format in READERS:
        documents = _from_files(format, input, skipped)
    else:
        raise InputError(
            "unknown corpus format",
            where="--format",
            expected=" or ".join(FORMATS),
            found=repr(format),
        )
    return _complete(documents, skipped)


def _from_files(format: str, input: str, skipped: Skipped) -> Iterator[Document]:
    for stream in streams(input, SUFFIXES.get(format, "")):
        with naming_damage(stream.name):
            yield from READERS[format](stream.name, stream.file, skipped)


def _complete(documents: Iterator[Document], skipped: Skipped) -> Iterator[Document]:
    for document in documents:
        title, body = document.title.strip(), document.body.strip()
        if not body:
            skipped["empty_body"] += 1
        elif _SURROGATE.search(title) or _SURROGATE.search(body):
            skipped["not_unicode"] += 1
        else:
            yield replace(document, title=title, body=body)


def read_wikiextractor(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """Reads WikiExtractor output: `<doc id url title>` … `</doc>` blocks, or its `--json` lines."""
    numbered = enumerate(file, 1)
    for number, line in numbered:
        where = f"{name}:{number}"
        if line.startswith(b"<doc "):
            text = decode(line + lines_until(numbered, b"</doc>", where), skipped)
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
            yield from _article(Document(match[2], body, where, match[1]), skipped)
        elif line.startswith(b"{"):
            text = decode(line, skipped)
            if text is not None:
                yield from _article(json_document(text, where), skipped)
        elif line.strip():
            raise InputError(
                "not WikiExtractor output",
                where=where,
                expected='a line that begins with <doc id="…" …> or {"id": …',
                found=repr(line[:60].decode("utf-8", "replace")),
                fix="give another --format, or an --input that matches only WikiExtractor files",
            )


def _article(found: Document, skipped: Skipped) -> Iterator[Document]:
    title, body = html.unescape(found.title).strip(), html.unescape(found.body).strip()
    if is_listing(title, skipped):
        return
    first, _, rest = body.partition("\n")
    body = rest if first.strip() == title else body
    yield replace(found, title=title, body=body)


def read_jsonl(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """Reads one JSON object per line: `text`, optionally `title` and `_id` or `id`."""
    for number, line in enumerate(file, 1):
        text = decode(line, skipped)
        if text is not None and text.strip():
            where = f"{name}:{number}"
            yield json_document(text, where)


def read_text(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """Reads one document per file; its title is the file name without suffix."""
    body = decode(file.read(), skipped)
    if body is not None:
        yield Document(stem(name), body, name)


Reader = Callable[[str, BufferedIOBase, Skipped], Iterator[Document]]
READERS: dict[str, Reader] = {
    "wikiextractor": read_wikiextractor,
    "jsonl": read_jsonl,
    "beir": read_jsonl,
    "text": read_text,
    "cc_news": read_cc_news,
    "reuters": read_reuters,
}
FORMATS = (*READERS, "tfds")
