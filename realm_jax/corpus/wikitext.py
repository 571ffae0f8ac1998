"""MediaWiki's markup to plain text, in time proportional to the length of the page.

As in WikiExtractor's output, templates, tables, references and pictures are left out, and links
are replaced by their labels. Headings are left out; items of lists are kept. A template or table
that is never closed keeps its text. docs/dev/dependencies.md has the reason for own code.
"""

import html
import re
from collections.abc import Iterator

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# Elements whose content is not prose.
_DROPPED = re.compile(
    r"<(/?)(ref|math|chem|gallery|timeline|syntaxhighlight|source|score|graph|imagemap|mapframe"
    r"|templatedata|hiero|references|inputbox|section)\b([^<>]{0,2000})>",
    re.IGNORECASE,
)
# Patterns begin with a fixed character where they can: then most of the text is passed quickly.
_BRACES = re.compile(r"\{[{|]|\}\}|\|\}(?!\})")
_BRACKETS = re.compile(r"\[\[|\]\]")
# Possessive quantifiers: without a closing bracket, nothing is tried again.
_URL = re.compile(r"\[(?:https?:|ftp:)?//[^\s\[\]]++[ \t]*+([^\[\]\n]*+)\]")
_BREAK = re.compile(r"<br[ \t]{0,9}/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,2000}>")
_QUOTES = re.compile("''+")
_MAGIC_WORD = re.compile(r"__[A-Z]{3,30}__")
_BULLETS = "*#:; \t"
_EMPTY_PARENTHESES = re.compile(r"\([ \t,;:]*\)[ \t]?|（[ \t,;:，；：、]*）")
_PARENTHESIS = re.compile(r"([(（])[ \t]*[,;，；、][ \t]*")
_BLANK_LINES = re.compile(r"\n\s*\n")
_PICTURE = re.compile(
    r"\.(?:jpe?g|png|svg|gif|tiff?|webp|web[mp]|og[agv]|mp[34]|pdf|djvu|mid|wav)$", re.I
)
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,12})*|simple")
# Every wiki accepts these names; the last two are those of "category" in Chinese.
_HIDDEN = {"file", "image", "category", "media", "template", "module", "分类", "分類"}


def plain_text(source: str, unshown: frozenset[str] = frozenset()) -> str:
    """The prose of a page.

    Args:
      source: its markup.
      unshown: names, in lower case, of further namespaces whose links a page does not show.
    """
    text = _COMMENT.sub("", source)
    text = _without(text, _elements(text))
    text = _without(text, _braces(text))
    text = _links(text, unshown)
    text = _URL.sub(r"\1", text)
    text = _TAG.sub("", _BREAK.sub("\n", text))
    text = html.unescape(_MAGIC_WORD.sub("", _QUOTES.sub("", text))).replace("\xa0", " ")
    text = "\n".join(line.lstrip(_BULLETS) for line in text.split("\n") if _is_prose(line))
    text = _PARENTHESIS.sub(r"\1", _EMPTY_PARENTHESES.sub("", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def _is_prose(line: str) -> bool:
    """Whether a line is no heading, no rule, and no remainder of a table."""
    if line.startswith("="):
        return not line.rstrip().endswith("=")
    return not line.startswith(("|", "!", "----"))


def _without(text: str, spans: Iterator[tuple[int, int]]) -> str:
    """The text without spans, which are in order and may be inside the span that follows them."""
    kept: list[tuple[int, int]] = []
    for start, stop in spans:
        while kept and kept[-1][0] >= start:
            kept.pop()
        kept.append((start, stop))
    parts, at = [], 0
    for start, stop in kept:
        parts.append(text[at:start])
        at = stop
    return "".join([*parts, text[at:]])


def _elements(text: str) -> Iterator[tuple[int, int]]:
    """Spans of elements without prose; of an element that is never closed, only its tag."""
    opened: tuple[str, int, int] | None = None
    for tag in _DROPPED.finditer(text):
        closing, name, attributes = tag[1], tag[2].lower(), tag[3]
        if closing:
            if opened and opened[0] == name:
                yield opened[1], tag.end()
                opened = None
        elif attributes.endswith("/"):
            if opened is None:
                yield tag.span()
        elif opened is None or opened[0] == name:
            if opened:
                yield opened[1:]
            opened = (name, *tag.span())
    if opened:
        yield opened[1:]


def _braces(text: str) -> Iterator[tuple[int, int]]:
    """Spans of templates and tables that are closed; an inner one comes before the outer one."""
    opened: list[tuple[bool, int]] = []  # (whether a table, start)
    counts = {True: 0, False: 0}
    for brace in _BRACES.finditer(text):
        is_table = "|" in brace[0]
        if is_table and not _begins_line(text, brace.start()):
            continue  # tables begin and end at the start of a line
        if "{" in brace[0]:
            opened.append((is_table, brace.start()))
            counts[is_table] += 1
        elif counts[is_table]:
            while True:
                kind, start = opened.pop()
                counts[kind] -= 1
                if kind == is_table:
                    break
            yield start, brace.end()


def _begins_line(text: str, at: int) -> bool:
    """Whether only the marks of a list item are before `at` in its line."""
    while at and text[at - 1] in " \t:*":
        at -= 1
    return not at or text[at - 1] == "\n"


def _links(text: str, unshown: frozenset[str]) -> str:
    """Replaces [[links]], inner ones first; brackets without a partner stay."""
    parts: list[list[str]] = [[]]
    at = 0
    for bracket in _BRACKETS.finditer(text):
        parts[-1].append(text[at : bracket.start()])
        at = bracket.end()
        if bracket[0] == "[[":
            parts.append([])
        elif len(parts) > 1:
            label = _label("".join(parts.pop()), unshown)
            parts[-1].append(label)
        else:
            parts[-1].append("]]")
    rest = "".join("".join(part) for part in parts)
    return rest + text[at:]


def _label(link: str, unshown: frozenset[str]) -> str:
    """The text that a page shows for the link [[link]]."""
    target, pipe, label = link.partition("|")
    target = target.strip()
    namespace = target.partition(":")[0].lower() if ":" in target else ""
    if namespace in _HIDDEN or namespace in unshown or (namespace and _PICTURE.search(target)):
        return ""
    if not pipe:
        if namespace and (_LANGUAGE.fullmatch(namespace) and not target.startswith(":")):
            return ""
        return target.lstrip(":")
    # In a namespace of another language, a picture has several parameters.
    return "" if namespace and "|" in label else label.rpartition("|")[2].strip()
