"""News, the other pre-training corpus: CC-News as JSON lines, and Reuters-21578."""

import html
import re
from collections.abc import Iterator
from io import BufferedIOBase

from realm_jax.corpus.documents import Document, Skipped, decode, json_texts, lines_until
from realm_jax.errors import InputError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# What the wire puts below a story, on lines of its own: "Reuter", "REUTER...^M", "MORE", " --".
_SIGN_OFF = re.compile(r"\s*(?:reuters?|more|-+)?[.\s]*(?:\^M)?\s*", re.IGNORECASE)
_PARAGRAPH = re.compile(r"\n(?:\s*\n|(?= {2}))")


def read_cc_news(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """One article per JSON line, as published (`title`, `text`) or as news-please writes it.

    That crawler calls the body `maintext`. Other fields (date, url, domain, …) are passed over.
    Articles without title or text, of which there are many, are counted.
    """
    for number, line in enumerate(file, 1):
        text = decode(line, skipped)
        if text is not None and text.strip():
            where = f"{name}:{number}"
            title, body = json_texts(text, where, ("title",), ("maintext", "text"))
            yield Document(title, body, where)


def read_reuters(name: str, file: BufferedIOBase, skipped: Skipped) -> Iterator[Document]:
    """The stories of Reuters-21578 (`reut2-*.sgm`) with headline and body; the others are counted.

    A story of headline only is `headline_only`; one whose parts were never marked, mostly a table,
    is `unprocessed`. The text is ASCII: control codes and the one byte outside it are line noise.
    Lines of a paragraph are joined.

    Raises:
      InputError: not such a file, or cut short.
    """
    numbered = enumerate(file, 1)
    for number, line in numbered:
        where = f"{name}:{number}"
        if line.startswith(b"<REUTERS"):
            story = lines_until(numbered, b"</REUTERS>", where).decode("ascii", "ignore")
            title, body = _part(story, "TITLE"), _part(story, "BODY")
            if title is None:
                skipped["unprocessed"] += 1
            elif body is None:
                skipped["headline_only"] += 1
            else:
                yield Document(" ".join(title.split()), _paragraphs(body), where)
        elif line.strip() and not line.startswith(b"<!DOCTYPE lewis"):
            raise InputError(
                "not Reuters-21578",
                where=where,
                expected="a line that begins with <REUTERS",
                found=repr(line[:60].decode("utf-8", "replace")),
                fix="give an --input that matches reut2-*.sgm only",
            )


def _part(story: str, tag: str) -> str | None:
    _, found, rest = story.partition(f"<{tag}>")
    return _CONTROL.sub("", html.unescape(rest.partition(f"</{tag}>")[0])) if found else None


def _paragraphs(body: str) -> str:
    lines = body.rstrip().split("\n")
    while lines and _SIGN_OFF.fullmatch(lines[-1]):
        lines.pop()
    paragraphs = _PARAGRAPH.split("\n".join(lines))
    return "\n\n".join(" ".join(p.split()) for p in paragraphs if p.strip())
