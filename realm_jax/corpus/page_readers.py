"""Readers of files that hold one document each: plain text, HTML, PDF and Word.

The id of such a document is the path of its file.
"""

import logging
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BytesIO
from typing import Any
from zipfile import BadZipFile

from selectolax.lexbor import LexborHTMLParser

from realm_jax.corpus.documents import Columns, Document, decode
from realm_jax.corpus.input_files import Stream, file_id, stem
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

# Controls are left out, but not forms: some systems wrap the whole page in one.
_NO_PROSE = (
    "script, style, noscript, template, nav, footer, select, datalist, button, textarea, "
    "svg, iframe"
)
_BLOCKS = (
    "address, article, aside, blockquote, br, caption, dd, details, div, dl, dt, figcaption, "
    "figure, h1, h2, h3, h4, h5, h6, header, hr, label, legend, li, main, ol, option, p, pre, "
    "section, summary, table, tr, ul"
)
_CELLS = "td, th"
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WRAPPERS = {_WORD + name for name in ("sdt", "sdtContent", "customXml")}  # sdt: content controls
_SIGNS = {
    _WORD + "br": "\n",
    _WORD + "cr": "\n",
    _WORD + "noBreakHyphen": "-",
    _WORD + "ptab": "\t",
    _WORD + "tab": "\t",
}
# Deleted and moved text, properties (they have tab stops), pronunciation, and text boxes.
_UNREAD = {_WORD + name for name in ("del", "moveFrom", "pPr", "rPr", "rt", "txbxContent")}
_BREAK = "\f"  # between blocks, while white space is joined
_INSTALL = "pip install -e '.[documents]'"


def read_text(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads one document per file; its title is the file name without suffix."""
    body = decode(file.read(), name, skipped)
    if body is not None:
        yield Document(stem(name), body, name, file_id(name))


def read_html(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads the visible text of a page, without navigation; its title is `<title>`, or `<h1>`."""
    source = decode(file.read(), name, skipped)
    if source is None:
        return
    page = LexborHTMLParser(source.replace("\0", ""))
    heading = page.css_first("head title") or page.css_first("h1")
    title = " ".join(heading.text().split()) if heading else ""
    for node in page.css(_NO_PROSE):
        node.decompose()
    for node in page.css(_BLOCKS):
        node.insert_before(_BREAK)
        node.insert_after(_BREAK)
    for node in page.css(_CELLS):
        node.insert_before(" ")
        node.insert_after(" ")
    text = page.body.text() if page.body else ""
    blocks = (" ".join(block.split()) for block in text.split(_BREAK))
    body = "\n".join(filter(None, blocks))
    yield Document(title or stem(name), body, name, file_id(name))


def read_pdf(stream: Stream, skipped: Skipped, columns: Columns) -> Iterator[Document]:
    """Reads the text of a PDF file; its title is the file name. A scan without text is skipped."""
    with _extra("pypdf"):
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    # Its warnings about flaws that it repairs come several times for a file and do not name it.
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    try:
        reader = PdfReader(BytesIO(stream.file.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            skipped.add("encrypted", stream.name)
            return
        pages = [page.extract_text() for page in reader.pages]
    except DependencyError:  # AES, and no package that decrypts it
        skipped.add("encrypted", f"{stream.name} (with AES; try: pip install cryptography)")
        return
    except (PyPdfError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError,
            RecursionError, AssertionError, OSError, NotImplementedError):  # fmt: skip
        # pypdf parses lazily, so damage gives errors of many kinds.
        skipped.add("damaged", stream.name)
        return
    text = re.sub(r"(?<=\w)-\n(?=[a-z])", "", "\n".join(pages))
    yield Document(stem(stream.name), text, stream.name, file_id(stream.name))


def read_docx(stream: Stream, skipped: Skipped, columns: Columns) -> Iterator[Document]:
    """Reads paragraphs and tables of a Word file; its title is the file name.

    Tracked changes are read as if they were accepted: insertions, but not deletions.
    """
    with _extra("docx"):
        import docx
        from docx.opc.exceptions import OpcError
    try:
        lines = list(_lines(docx.Document(BytesIO(stream.file.read())).element.body))
    except (OpcError, BadZipFile, zlib.error, LookupError, ValueError, TypeError, AttributeError,
            SyntaxError, OSError, NotImplementedError):  # fmt: skip
        # lxml's errors are SyntaxErrors; a broken zip archive gives errors of many kinds.
        skipped.add("damaged", stream.name)
        return
    yield Document(stem(stream.name), "\n".join(lines), stream.name, file_id(stream.name))


# The functions below read the XML: `text` and `cells` of python-docx leave out insertions and
# content controls.


def _lines(part: Any) -> Iterator[str]:
    """Paragraphs of a body or of a cell, and rows of its tables; merged cells once."""
    for block in _unwrapped(part):
        if block.tag == _WORD + "p":
            yield "".join(_texts(block))
        elif block.tag == _WORD + "tbl":
            for row in _unwrapped(block):
                if row.tag == _WORD + "tr":
                    cells = (cell for cell in _unwrapped(row) if cell.tag == _WORD + "tc")
                    yield " ".join(" ".join(_lines(c)) for c in cells if not _is_merged(c))


def _unwrapped(part: Any) -> Iterator[Any]:
    """The child elements, and those within content controls."""
    for child in part:
        if child.tag in _WRAPPERS:
            yield from _unwrapped(child)
        else:
            yield child


def _is_merged(cell: Any) -> bool:
    """Whether the cell belongs to the one above it."""
    merge = cell.find(f"{_WORD}tcPr/{_WORD}vMerge")
    return merge is not None and merge.get(_WORD + "val", "continue") == "continue"


def _texts(node: Any) -> Iterator[str]:
    """The texts within a paragraph, with those of insertions, links, fields and controls."""
    for child in node:
        if child.tag == _WORD + "t":
            yield child.text or ""
        elif child.tag in _SIGNS:
            yield _SIGNS[child.tag]
        elif child.tag not in _UNREAD:
            yield from _texts(child)


@contextmanager
def _extra(package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(
            f"the package {package} is not installed", where="--format", fix=_INSTALL
        ) from error
