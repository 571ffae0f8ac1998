"""Readers of tables with named columns: CSV, TSV (also DPR's `psgs_w100.tsv`) and Parquet."""

import csv
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BufferedIOBase, TextIOWrapper
from typing import Any, BinaryIO, cast

from realm_jax.corpus.documents import Columns, Document, chosen_columns
from realm_jax.corpus.input_files import Stream
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

LONGEST_FIELD = 1 << 26  # characters of a field of a CSV file
_BATCH = 256  # rows of a Parquet file in memory
_BUFFER = 1 << 20  # bytes of a column of a Parquet file read at a time
_DELIMITERS = ",;\t|"


def read_csv(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads a table whose first line has the names; separated by comma, semicolon, tab or bar."""
    return _rows(name, file, columns, _DELIMITERS)


def read_tsv(
    name: str, file: BufferedIOBase, skipped: Skipped, columns: Columns
) -> Iterator[Document]:
    """Reads a table whose first line has the names, separated by tabs; quotes as in CSV."""
    return _rows(name, file, columns, "\t")


def _rows(name: str, file: BufferedIOBase, columns: Columns, delimiters: str) -> Iterator[Document]:
    csv.field_size_limit(LONGEST_FIELD)
    # Fields with bytes that are not UTF-8 are counted as `not_unicode` by `readers.read`.
    lines = TextIOWrapper(cast(BinaryIO, file), "utf-8-sig", errors="surrogateescape", newline="")
    with _naming_line(name) as at, closing(lines):
        header = lines.readline(LONGEST_FIELD)
        delimiter = max(delimiters, key=header.count)
        names = next(csv.reader([header], delimiter=delimiter), [])
        title, text, id = chosen_columns(names, columns, f"{name}:1")
        where = [names.index(one) if one is not None else None for one in (title, text, id)]
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        for row in rows:
            start, at[0] = at[0] + 1, rows.line_num + 1
            if not row:
                continue
            if len(row) != len(names):
                raise InputError(
                    "row has another number of fields than the first line",
                    where=f"{name}:{start}",
                    expected=f"{len(names)}: {', '.join(names)}"[:200],
                    found=f"{len(row)}: {row}"[:200],
                )
            fields = ["" if i is None else row[i] for i in where]
            yield Document(fields[0], fields[1], f"{name}:{start}", fields[2])


@contextmanager
def _naming_line(name: str) -> Iterator[list[int]]:
    """Converts errors of the table into an InputError that names the row after the last one."""
    at = [1]  # the last line of the last row
    try:
        yield at
    except csv.Error as error:
        raise InputError(
            "not a table as CSV",
            where=f"{name}, in or after line {at[0] + 1}",
            found=str(error),
            fix='a field with a quotation mark is written with quotes around it and each " in it '
            "doubled",
        ) from error


def read_parquet(stream: Stream, skipped: Skipped, columns: Columns) -> Iterator[Document]:
    """Reads rows of a Parquet file, such as those of Hugging Face's `wikimedia/wikipedia`.

    Raises:
      InputError: the file is damaged, or it has no column of text.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with stream.seekable() as file:
        try:
            table = parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)
            chosen = chosen_columns(table.schema_arrow.names, columns, stream.name)
            _check_types(stream.name, table.schema_arrow, chosen)
            wanted = [name for name in chosen if name is not None]
            row = 0
            for batch in table.iter_batches(_BATCH, columns=wanted, use_threads=False):
                values = [
                    [None] * len(batch) if name is None else batch.column(name).to_pylist()
                    for name in chosen
                ]
                for texts in zip(*values, strict=True):
                    row += 1
                    title, text, id = ("" if value is None else str(value) for value in texts)
                    yield Document(title, text, f"{stream.name}:{row}", id)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InputError(
                "Parquet file is damaged, cut short, or no Parquet file",
                where=stream.name,
                found=str(error)[:200],
                fix="download the file again",
            ) from error


def _check_types(name: str, schema: Any, chosen: tuple[str | None, ...]) -> None:
    from pyarrow import types

    for column, may_be_number in zip(chosen, (False, False, True), strict=True):
        kind = None if column is None else schema.field(column).type
        if kind is None:
            continue
        kind = kind.value_type if types.is_dictionary(kind) else kind
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if not (text or types.is_null(kind) or (may_be_number and types.is_integer(kind))):
            raise InputError(
                "column is not text",
                where=f"{name}: column {column}",
                expected="string",
                found=kind,
                fix="name another column: --columns=text=NAME,title=NAME,id=NAME",
            )
