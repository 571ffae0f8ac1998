"""Reads documents in any of the formats; `docs/how_to/bring_a_corpus.md` lists them.

Every reader is a generator, so memory does not grow with the corpus. What is not read is counted in
`skipped` by reason. Malformed input raises an `InputError` that names file and line.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase

from realm_jax.corpus.documents import Columns, Document, json_document, text_lines
from realm_jax.corpus.input_files import Stream, Suffix, Wanted, naming_damage, streams
from realm_jax.corpus.news_readers import read_reuters
from realm_jax.corpus.page_readers import read_docx, read_html, read_pdf, read_text
from realm_jax.corpus.table_readers import read_csv, read_parquet, read_tsv
from realm_jax.corpus.tally import Skipped
from realm_jax.corpus.wiki_dump import read_mediawiki
from realm_jax.corpus.wikiextractor import read_wikiextractor
from realm_jax.errors import InputError
from realm_jax.text.surrogates import UNPAIRED_SURROGATE


def read_jsonl(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads one JSON object per line: `text` (or `maintext`), optionally `title` and an id."""
    for where, line in text_lines(name, file, skipped):
        yield json_document(line, where, columns)


TextReader = Callable[[str, BufferedIOBase, Skipped, Columns], Iterator[Document]]
BinaryReader = Callable[[Stream, Skipped, Columns], Iterator[Document]]


@dataclass(frozen=True)
class Format:
    """How files of a format are read.

    Attributes:
      suffix: other files of folders, globs and archives are left out; see `Wanted`.
      text: reads UTF-8; None for a binary format.
      binary: reads the bytes of a file.
    """

    suffix: Suffix = ""
    text: TextReader | None = None
    binary: BinaryReader | None = None

    def wanted(self, encoding: str | None = None) -> Wanted:
        """Which files are opened, and how."""
        return Wanted(self.suffix, self.binary is None, encoding)

    def read(self, stream: Stream, skipped: Skipped, columns: Columns) -> Iterator[Document]:
        """Reads the documents of one file."""
        if self.binary is not None:
            return self.binary(stream, skipped, columns)
        assert self.text is not None
        return self.text(stream.name, stream.file, skipped, columns)


FILE_FORMATS = {
    "wikiextractor": Format("", read_wikiextractor),
    "mediawiki": Format(".xml", read_mediawiki),
    "jsonl": Format("", read_jsonl),
    "beir": Format("corpus.jsonl", read_jsonl),
    "parquet": Format((".parquet", ".pq"), binary=read_parquet),
    "dpr": Format(".tsv", read_tsv),
    "csv": Format(".csv", read_csv),
    "tsv": Format((".tsv", ".tab"), read_tsv),
    "text": Format((".txt", ".md"), read_text),
    "html": Format((".html", ".htm", ".xhtml"), read_html),
    "pdf": Format(".pdf", binary=read_pdf),
    "docx": Format(".docx", binary=read_docx),
    "cc_news": Format("", read_jsonl),
    "reuters": Format(".sgm", read_reuters),
}
FORMATS = (*FILE_FORMATS, "tfds")


def read(
    format: str,
    input: str,
    skipped: Skipped,
    *,
    columns: Columns = Columns(),  # noqa: B008 - immutable
    encoding: str | None = None,
    required: bool = True,
) -> Iterator[Document]:
    """Reads the documents of `input` in a fixed order: files by path, then as in the file.

    Args:
      format: one of `FORMATS`.
      input: a file, a folder, a glob or an archive of such files; for `tfds` see `read_tfds`.
      skipped: counts what is not read, by reason; updated during iteration.
      columns: names of the fields of records and tables, if they are not the usual ones.
      encoding: of text files; None: detected for each file.
      required: see `streams`.

    Raises:
      InputError: the format is unknown, no file matches, or a file is damaged or malformed.
    """
    if format == "tfds":
        from realm_jax.corpus.tfds_reader import read_tfds

        documents = read_tfds(input, skipped)
    elif format in FILE_FORMATS:
        form = FILE_FORMATS[format]
        found = streams(input, form.wanted(encoding), skipped, required=required)
        documents = _from_files(form, found, skipped, columns)
    else:
        raise InputError(
            "unknown corpus format",
            where="--format",
            expected=" or ".join(FORMATS),
            found=repr(format),
        )
    return _complete(documents, skipped)


def _from_files(
    form: Format, found: Iterator[Stream], skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    for stream in found:
        with naming_damage(stream.name):
            yield from form.read(stream, skipped, columns)


def _complete(documents: Iterator[Document], skipped: Skipped) -> Iterator[Document]:
    for document in documents:
        title, body = document.title.strip(), document.body.strip()
        if not body:
            skipped.add("empty_body", document.where)
        elif any(map(UNPAIRED_SURROGATE.search, (title, body, document.id))):
            skipped.add("not_unicode", document.where)
        else:
            yield replace(document, title=title, body=body)
