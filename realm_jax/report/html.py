"""Builds HTML pages as trees of elements, so that text can never become markup."""

import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

Element = ElementTree.Element
Child = Element | str | float | int | None | Iterable[Any]

# The browser fetches nothing and runs no script, whatever the page contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Makes an element.

    Args:
      tag: such as `td`.
      children: elements, strings, numbers or lists of those; None is skipped.
      attributes: `class_` becomes `class`, `stroke_width` becomes `stroke-width`; None is skipped.
    """
    cleaned = {
        name.rstrip("_").replace("_", "-"): _clean(str(value))
        for name, value in attributes.items()
        if value is not None
    }
    parent = Element(tag, cleaned)
    _fill(parent, children)
    return parent


def _fill(parent: Element, children: Iterable[Any]) -> None:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Element):
            parent.append(child)
        elif isinstance(child, str | int | float):
            _append_text(parent, _clean(str(child)))
        else:
            _fill(parent, child)


def _append_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def _clean(text: str) -> str:
    """Replaces characters that HTML forbids, such as control codes, with U+FFFD."""
    return _NOT_TEXT.sub("�", text)


def table(head: Iterable[str], rows: Iterable[Any], numbers: tuple[int, ...] = ()) -> Element:
    """Makes a table; it scrolls if it is too wide. Columns in `numbers` are aligned right."""

    def cells(tag: str, row: Iterable[Any]) -> list[Element]:
        return [
            element(tag, cell, class_="number" if column in numbers else None)
            for column, cell in enumerate(row)
        ]

    top = element("thead", element("tr", cells("th", head)))
    body = element("tbody", [element("tr", cells("td", row)) for row in rows])
    return element("div", element("table", top, body), class_="scroll")


def page(title: str, style: str, body: Iterable[Any]) -> bytes:
    """Makes a complete HTML document in UTF-8 that loads no other file."""
    root = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            element("style", style),
        ),
        element("body", element("main", body)),
        lang="en",
    )
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n".encode()
