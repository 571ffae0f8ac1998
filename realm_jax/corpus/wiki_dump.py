"""Reads the XML dump of a MediaWiki, such as `enwiki-latest-pages-articles.xml.bz2`."""

import re
from collections.abc import Iterator
from io import BufferedIOBase
from xml.etree import ElementTree
from xml.parsers.expat import errors

from realm_jax.corpus.documents import Columns, Document, is_listing
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:disamb(?:ig(?:uation)?)?|dab|hndis|geodis)(?:[ -]\w{1,20})?\s*(?:\||\}\})",
    re.IGNORECASE,
)

_SYNTAX = errors.codes[errors.XML_ERROR_SYNTAX]
# Keys of the namespaces Media, File, Template, Category and Module.
_UNSHOWN = {"-2", "6", "10", "14", "828"}


def read_mediawiki(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads the articles of a dump: pages of namespace 0 that are no redirects, newest revision.

    Counted as skipped: `redirect`, `not_article` (other namespaces), `not_wikitext` (other content
    models), `disambiguation_page` (also by its template) and the other pages that only list pages.
    Links to categories and files are recognised by the names that the head of the dump gives to
    these namespaces. A file of several bzip2 streams is one dump. One page is in memory at a time.

    Raises:
      InputError: the file is not XML of MediaWiki, or it is cut short.
    """
    unshown: set[str] = set()
    try:
        for page in _pages(name, file, unshown):
            document = _article(name, page, skipped, frozenset(unshown))
            if document is not None:
                yield document
    except ElementTree.ParseError as error:
        line, _ = error.position
        if error.code == _SYNTAX:  # before any element
            raise InputError(
                "not a MediaWiki dump",
                where=f"{name}:{line}",
                expected="<mediawiki …>",
                found="text that is not XML",
                fix="give the dump itself, *.xml or *.xml.bz2; *-index.txt is its table of pages",
            ) from error
        raise InputError(
            "XML is damaged or cut short",
            where=f"{name}:{line}",
            found=str(error),
            fix="download the file again",
        ) from error


def _pages(name: str, file: BufferedIOBase, unshown: set[str]) -> Iterator[dict[str, str]]:
    """The fields of each page; those of its last revision, if a page has several.

    Adds the names of namespaces that pages do not show to `unshown`, before the first page.
    """
    root: ElementTree.Element | None = None
    page: dict[str, str] = {}
    for event, element in ElementTree.iterparse(file, ("start", "end")):
        tag = element.tag.rpartition("}")[2]
        if root is None:
            root = element
            if tag != "mediawiki":
                raise InputError(
                    "not a MediaWiki dump", where=name, expected="<mediawiki …>", found=f"<{tag}>"
                )
        if event == "start":
            continue
        if tag == "namespace" and element.get("key") in _UNSHOWN and element.text:
            unshown.add(element.text.lower())
        elif tag in ("title", "ns", "model"):
            page[tag] = element.text or ""
        elif tag == "id":
            page.setdefault("id", element.text or "")  # the first is that of the page
        elif tag == "redirect":
            page["redirect"] = element.get("title", "")
        elif tag == "text":
            page["text"] = element.text or ""
        elif tag == "revision":
            element.clear()
        elif tag == "page":
            yield page
            page = {}
            root.clear()


def _article(
    name: str, page: dict[str, str], skipped: Skipped, unshown: frozenset[str]
) -> Document | None:
    title, text = page.get("title", ""), page.get("text", "")
    where = f"{name}: page {page.get('id')}"
    if page.get("ns", "0") != "0":
        skipped.add("not_article", title)
    elif "redirect" in page:
        skipped.add("redirect", title)
    elif page.get("model", "wikitext") != "wikitext":
        skipped.add("not_wikitext", title)
    elif not is_listing(title, where, skipped):
        if not _DISAMBIGUATION.search(text):
            return Document(title, text, where, page.get("id", ""), "wikitext", unshown)
        skipped.add("disambiguation_page", f"{title} ({where})")
    return None
