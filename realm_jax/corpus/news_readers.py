"""Reads the news of Reuters-21578."""

import html
import re
from collections.abc import Iterator
from io import BufferedIOBase

from realm_jax.corpus.documents import Columns, Document, lines_until, numbered_lines, wrong_line
from realm_jax.corpus.tally import Skipped

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Lines that end a story and are not part of it: "Reuter", "REUTER...^M", "MORE", " --".
_SIGN_OFF = re.compile(r"\s*(?:reuters?|more|-+)?[.\s]*(?:\^M)?\s*", re.IGNORECASE)
_ID = re.compile(r'NEWID="(\d+)"')
_PARAGRAPH = re.compile(r"\n(?:\s*\n|(?= {2}))")


def read_reuters(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads the stories of Reuters-21578 (`reut2-*.sgm`) that have a headline and a body.

    Others are counted as skipped: `headline_only`, or `unprocessed` if the file does not mark title
    and body (mostly tables). The text is ASCII; control characters and other bytes are removed.
    Lines of a paragraph are joined.

    Raises:
      InputError: the file is not Reuters-21578, or it is cut short.
    """
    numbered = numbered_lines(name, file)
    for where, line in numbered:
        if line.startswith(b"<REUTERS"):
            story = lines_until(numbered, b"</REUTERS>", where).decode("ascii", "ignore")
            title, body = _part(story, "TITLE"), _part(story, "BODY")
            if title is None:
                skipped.add("unprocessed", where)
            elif body is None:
                skipped.add("headline_only", where)
            else:
                id = "".join(_ID.findall(line.decode("ascii", "ignore"))[:1])
                yield Document(" ".join(title.split()), _paragraphs(body), where, id)
        elif line.strip() and not line.startswith(b"<!DOCTYPE lewis"):
            expected = "a line that begins with <REUTERS"
            fix = "give an --input that matches reut2-*.sgm only"
            raise wrong_line("not Reuters-21578", where, expected, line, fix)


def _part(story: str, tag: str) -> str | None:
    _, found, rest = story.partition(f"<{tag}>")
    return _CONTROL.sub("", html.unescape(rest.partition(f"</{tag}>")[0])) if found else None


def _paragraphs(body: str) -> str:
    lines = body.rstrip().split("\n")
    while lines and _SIGN_OFF.fullmatch(lines[-1]):
        lines.pop()
    paragraphs = _PARAGRAPH.split("\n".join(lines))
    return "\n\n".join(" ".join(p.split()) for p in paragraphs if p.strip())
