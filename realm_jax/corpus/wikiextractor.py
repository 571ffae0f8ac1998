"""Reads WikiExtractor's output: `<doc id url title>` … `</doc>` blocks, or its `--json` lines."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from io import BufferedIOBase

from realm_jax.corpus.documents import (
    Columns,
    Document,
    decode,
    is_listing,
    json_document,
    numbered_lines,
    wrong_line,
)
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

_START = re.compile(rb"\s*<doc(?:\s|>)")
_END = re.compile(rb"</doc>\s*$")
_BOTH = re.compile(rb"</doc>\s*(?=<doc\s)")
# A value ends at the quote before the next attribute or the end: titles contain quotes.
_ATTRIBUTE = re.compile(r'(\w+)="(.*?)"(?=\s+\w+="|\s*>\s*$)')
_LONGEST_HEADER = 10_000


def read_wikiextractor(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads the articles of one file; a repeated title line is removed from the body.

    Counted as skipped: `broken_article`, an article without a readable header or end, or one that
    an end tag divides; and pages that only list other pages.

    Raises:
      InputError: the file does not begin with an article.
    """
    blocks = _Blocks(name, skipped)
    for where, line in numbered_lines(name, file):
        # One line may end an article and begin the next.
        for part in _BOTH.sub(b"</doc>\0", line).split(b"\0"):
            yield from blocks.read(where, part, columns)
    yield from blocks.finish()


class _Blocks:
    """Divides lines into articles; an article is complete when the next one begins after its end.

    Only then it is known that no text follows its end tag, which would belong to it.
    """

    def __init__(self, name: str, skipped: Skipped):
        self._name, self._skipped = name, skipped
        self._where = ""  # of the present article; "" before the first
        self._lines: list[bytes] = []
        self._ended = self._broken = False

    def read(self, where: str, line: bytes, columns: Columns) -> Iterator[Document]:
        """Takes one line; yields the article before it, if this line begins another one."""
        if _START.match(line):
            yield from self.finish()
            self._where, self._lines = where, [line.lstrip()]
            if _END.search(line):
                self._broken = True  # a header without a line of its own
        elif (self._ended or not self._where) and line.lstrip().startswith(b"{"):
            yield from self.finish()
            yield from self._json(where, line, columns)
        elif line.strip() and not self._where:
            expected = 'a line that begins with <doc id="…" …> or {"id": …'
            fix = "give another --format, or an --input that matches only WikiExtractor files"
            raise wrong_line("not WikiExtractor output", where, expected, line, fix)
        elif self._ended:
            self._broken = self._broken or bool(line.strip())
        elif end := _END.search(line):
            self._lines.append(line[: end.start()])
            self._ended = True
        else:
            self._lines.append(line)

    def finish(self) -> Iterator[Document]:
        """Yields the present article, or counts it as broken."""
        lines, where = self._lines, self._where
        stray, broken, self._lines = self._broken, self._broken or not self._ended, []
        self._ended = self._broken = False
        if not lines:
            if stray:  # text between JSON lines
                self._skipped.add("broken_article", where)
            return
        text = decode(b"".join(lines), where, self._skipped)
        if text is None:
            return
        header, _, body = text.partition("\n")
        attributes = dict(_ATTRIBUTE.findall(header[:_LONGEST_HEADER]))
        if broken or "title" not in attributes:
            self._skipped.add("broken_article", where)
        else:
            document = Document(attributes["title"], body, where, attributes.get("id", ""))
            yield from _article(document, self._skipped)

    def _json(self, where: str, line: bytes, columns: Columns) -> Iterator[Document]:
        self._where, self._ended = where, True
        text = decode(line, where, self._skipped)
        if text is None:
            return
        try:
            document = json_document(text, where, columns)
        except InputError:
            self._skipped.add("broken_article", where)
        else:
            yield from _article(document, self._skipped)


def _article(found: Document, skipped: Skipped) -> Iterator[Document]:
    title, body = html.unescape(found.title).strip(), html.unescape(found.body).strip()
    if is_listing(title, found.where, skipped):
        return
    first, _, rest = body.partition("\n")
    yield replace(found, title=title, body=rest if first.strip() == title else body)
