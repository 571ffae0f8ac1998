"""The flags of `realm corpus build` and `realm corpus add` that name documents."""

import argparse
import contextlib
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from realm_jax.cli.arguments import Once
from realm_jax.corpus.documents import Columns
from realm_jax.corpus.input_files import STANDARD_INPUT
from realm_jax.corpus.readers import FORMATS

LOG_EVERY = 5.0  # seconds between log lines of progress

EXISTS = "choose another --out, or delete this folder; to add documents to it: {}"

log = logging.getLogger(__name__)


def add_input(parser: argparse.ArgumentParser) -> None:
    """Adds --format, --input, --columns and --encoding."""
    parser.add_argument("--format", required=True, choices=FORMATS, help="format of the input")
    parser.add_argument(
        "--input",
        action=Once,
        required=True,
        help="file, folder, archive, quoted glob, or - for standard input; format tfds: folder or "
        "name",
    )
    parser.add_argument(
        "--columns",
        type=_columns,
        default=Columns(),
        metavar="text=NAME,title=NAME,id=NAME",
        help="names of the fields in jsonl, csv, tsv and parquet; default: text, title, _id or id",
    )
    parser.add_argument(
        "--encoding", help="of text files, such as cp1252; default: UTF-8, else detected per file"
    )


def _columns(text: str) -> Columns:
    """Names of fields, such as `text=body,title=headline,id=key`."""
    named = dict(part.partition("=")[::2] for part in text.split(","))
    if not named.keys() <= {"title", "text", "id"} or not all(named.values()):
        raise argparse.ArgumentTypeError(f"{text!r}: expected text=NAME,title=NAME,id=NAME")
    return Columns(**named)


def add_command(arguments: argparse.Namespace) -> list[str]:
    """The command that adds the input of a build to the corpus in its --out."""
    flags = [f"--format={arguments.format}", f"--input={arguments.given_input}"]
    if arguments.columns != Columns():
        named = (f"{field}={name}" for field, name in asdict(arguments.columns).items() if name)
        flags.append(f"--columns={','.join(named)}")
    if arguments.encoding is not None:
        flags.append(f"--encoding={arguments.encoding}")
    return ["realm", "corpus", "add", f"--to={arguments.out}", *flags]


def how(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `readers.read`."""
    return {"columns": arguments.columns, "encoding": arguments.encoding}


@contextlib.contextmanager
def checked_input(arguments: argparse.Namespace) -> Iterator[None]:
    """Checks --encoding, and copies standard input to a temporary file during the block.

    An input is read twice, and a zip archive needs its end. `given_input` is --input as it was
    given, for messages.

    Raises:
      InputError: the encoding is unknown.
    """
    if arguments.encoding is not None:
        from realm_jax.corpus.encodings import check_encoding

        arguments.encoding = check_encoding(arguments.encoding)
    arguments.given_input = arguments.input
    if arguments.input != "-":
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, STANDARD_INPUT)
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        arguments.input = str(copy)
        yield


def log_progress(message: str) -> Callable[..., None]:
    """A function that logs `message` with its arguments, at most every LOG_EVERY seconds."""
    last = time.monotonic()

    def log_counts(*counts: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LOG_EVERY:
            last = time.monotonic()
            log.info(message, *counts)

    return log_counts
