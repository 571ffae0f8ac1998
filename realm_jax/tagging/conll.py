"""CoNLL files: one word per line with its BIO tag in the last column; blank lines end sentences."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from realm_jax.corpus.input_files import Stream, Wanted, naming_damage, streams
from realm_jax.errors import InputError
from realm_jax.tagging.bio import entities, split_tag, tags_of

log = logging.getLogger(__name__)

_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence: words, BIO2 tags, and the file:line where it begins."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str


def read_conll(input: str, types: str) -> list[list[TaggedSentence]]:
    """Reads the sentences of each document; without `-DOCSTART-` lines there is one document.

    An I that does not follow an entity of its type is changed to B, as conlleval reads it. The
    number of changed tags is logged.

    Args:
      input: a file, a folder, a glob or an archive; .xz, .gz and .bz2 are decompressed.
      types: the allowed entity types, as in `config.model.entities`.

    Raises:
      InputError: a line is not UTF-8, has another number of columns than the lines before, or has
        an invalid tag or a type not in `types` (the message names the line); or the input has no
        sentence.
    """
    known = types.split()
    documents: list[list[TaggedSentence]] = []
    changed = 0
    for first, lines in _sentences(input):
        if lines[0][1][0] == _DOCUMENT or not documents:
            documents.append([])
        rows = [line for line in lines if line[1][0] != _DOCUMENT]
        if not rows:
            continue
        raw = tuple(_known_tag(where, fields[-1], known) for where, fields in rows)
        tags = tuple(tags_of(entities(raw), len(raw)))
        changed += sum(a != b for a, b in zip(raw, tags, strict=True))
        documents[-1].append(TaggedSentence(tuple(fields[0] for _, fields in rows), tags, first))
    if changed:
        log.warning(
            "%s: %d I tags that follow no entity of their type changed to B", input, changed
        )
    documents = [document for document in documents if document]
    if not documents:
        raise InputError(
            "no sentence in the input", where=input, expected="a word and its tag on each line"
        )
    return documents


def read_predictions(input: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yields (true tags, predicted tags) of each sentence: the last two columns, as for conlleval.

    Raises:
      InputError: as `read_conll`, but any entity type is allowed; or there are fewer than three
        columns.
    """
    for _, rows in _sentences(input):
        for where, fields in rows:
            if len(fields) < 3:
                _malformed(where, "word, true tag, predicted tag", f"{len(fields)} columns")
            for tag in fields[-2:]:
                _known_tag(where, tag, None)
        yield [fields[-2] for _, fields in rows], [fields[-1] for _, fields in rows]


Row = tuple[str, list[str]]  # file:line, columns


def _sentences(input: str) -> Iterator[tuple[str, list[Row]]]:
    """Yields (file:line, rows) for each sentence."""
    for stream in streams(input, Wanted(text=False)):
        rows: list[Row] = []
        for where, fields in _rows(stream):
            if fields:
                rows.append((where, fields))
            elif rows:
                yield rows[0][0], rows
                rows = []
        if rows:
            yield rows[0][0], rows


def _rows(stream: Stream) -> Iterator[Row]:
    columns, set_by = 0, ""
    with naming_damage(stream.name):
        for number, line in enumerate(stream.file, start=1):
            where = f"{stream.name}:{number}"
            try:  # bytes.split() splits at ASCII whitespace only: a word may contain U+00A0
                fields = [field.decode("utf-8-sig") for field in line.split()]
            except UnicodeDecodeError as error:
                raise InputError(
                    "line is not UTF-8",
                    where=where,
                    found=f"{error.reason}: {line.strip()[:40]!r}",
                    fix="convert the file to UTF-8",
                ) from error
            if fields and not columns:
                columns, set_by = len(fields), where
                if columns < 2:
                    _malformed(where, "a word and its tag", repr(fields[0]))
            if fields and len(fields) != columns:
                _malformed(where, f"{columns} columns, as on {set_by}", f"{len(fields)} columns")
            yield where, fields


def _known_tag(where: str, tag: str, types: list[str] | None) -> str:
    parts = split_tag(tag)
    if parts is None:
        _malformed(where, "O, B-TYPE or I-TYPE in the last column", repr(tag))
    if types is not None and parts[0] != "O" and parts[1] not in types:
        expected = f"a tag of {', '.join(types)}"
        _malformed(where, expected, repr(tag), "list the types in config.model.entities")
    return tag


def _malformed(where: str, expected: str, found: str, fix: str | None = None) -> NoReturn:
    raise InputError("malformed line", where=where, expected=expected, found=found, fix=fix)
