"""`realm corpus`: build a passage store from your own text, annotate it, look into it."""

import argparse
import contextlib
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import natural, positive
from realm_jax.corpus.folder import MANIFEST
from realm_jax.errors import InputError

HELP = "build a corpus from your text, or look into one"
EXAMPLE = "realm corpus build --format=text --input='notes/*.txt' --out=runs/notes --workers=2"
EXAMPLE_INSPECT = "realm corpus inspect runs/notes"
TELL_EVERY = 5.0  # seconds between lines of progress

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-verbs build and inspect."""
    verbs = parser.add_subparsers(dest="corpus_verb", required=True, metavar="build|inspect")
    build = verbs.add_parser("build", help="text to passages", epilog=f"example: {EXAMPLE}")
    build.add_argument(
        "--format", required=True, choices=("wikiextractor", "jsonl", "text", "tfds")
    )
    build.add_argument("--input", required=True, help="file, folder, archive or quoted glob")
    build.add_argument("--out", required=True, help="folder to make; finished ones are refused")
    build.add_argument("--vocab", help="BERT vocab.txt; default: one is learnt from the input")
    build.add_argument("--passage-pieces", type=positive, default=288, help="longest passage")
    build.add_argument("--workers", type=positive, default=1, help="processes")
    build.add_argument("--json", action="store_true", help="one JSON object on the last line")
    inspect = verbs.add_parser(
        "inspect", help="what is in a corpus", epilog=f"example: {EXAMPLE_INSPECT}"
    )
    inspect.add_argument("folder", help="a corpus folder")
    inspect.add_argument("--seed", type=natural, default=0, help="of the random passage shown")
    inspect.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds or inspects."""
    runtime.log_to_stderr()
    return _build(arguments) if arguments.corpus_verb == "build" else _inspect(arguments)


def _build(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.annotate import annotate
    from realm_jax.corpus.build import build
    from realm_jax.corpus.store import PassageStore

    with _whole_or_nothing(Path(arguments.out)):
        report = build(
            arguments.format,
            arguments.input,
            arguments.out,
            arguments.vocab or _learn_vocabulary(arguments),
            passage_pieces=arguments.passage_pieces,
            workers=arguments.workers,
            progress=_now_and_then(),
        )
        log.info("marking names and dates")
        annotate(PassageStore.open(arguments.out))
    sys.stderr.write(
        f"{report['passages']} passages of {report['documents']} documents in {arguments.out}; "
        f"left out: {report['skipped'] or 'nothing'}\n"
    )
    return report


@contextlib.contextmanager
def _whole_or_nothing(out: Path) -> Iterator[None]:
    """Leaves no half corpus behind, and touches nothing that was there before."""
    if (out / MANIFEST).exists():
        raise InputError(
            "the corpus exists already",
            where=out,
            fix="choose another --out, or delete this folder: finished ones never change",
        )
    ours = not out.exists() or not any(out.iterdir())
    done = False
    try:
        yield
        done = True
    finally:
        if ours and not done:
            shutil.rmtree(out, ignore_errors=True)


def _now_and_then() -> Callable[[int, int], None]:
    last = time.monotonic()

    def tell(documents: int, passages: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY:
            last = time.monotonic()
            log.info("%d documents, %d passages", documents, passages)

    return tell


def _learn_vocabulary(arguments: argparse.Namespace) -> str:
    """A word-piece vocabulary of the input itself, written beside the corpus."""
    from collections import Counter

    from realm_jax.corpus.readers import read
    from realm_jax.text.vocabulary import sample_vocabulary, write_vocabulary

    documents = read(arguments.format, arguments.input, Counter())
    path = Path(f"{arguments.out.rstrip('/')}.vocab.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    log.info("no --vocab: learning one from the input, into %s", path)
    write_vocabulary(path, sample_vocabulary(d.title + "\n" + d.body for d in documents))
    return str(path)


def _inspect(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.inspect import inspect
    from realm_jax.corpus.store import PassageStore

    report = inspect(PassageStore.open(arguments.folder), seed=arguments.seed)
    if not arguments.json:
        sys.stdout.write(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return report
