"""`realm corpus`: builds a passage store from text, inspects or changes one."""

import argparse
import contextlib
import itertools
import json
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli import words
from realm_jax.cli.arguments import add_dry_run, add_json, add_verb, natural, positive, whole
from realm_jax.cli.corpus_changes import add_changes, change_corpus
from realm_jax.cli.corpus_input import (
    EXISTS,
    add_command,
    add_input,
    checked_input,
    how,
    log_progress,
)
from realm_jax.cli.corpus_vocabulary import given_vocabulary
from realm_jax.cli.overrides import ALL
from realm_jax.corpus.file_tree import LEARNED
from realm_jax.corpus.report_lines import report_lines
from realm_jax.corpus.spans import FOLDER as SPANS
from realm_jax.corpus.spans import mark_command
from realm_jax.corpus.split import LEAST_PIECES, PASSAGE_PIECES
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError
from realm_jax.monitoring.format import things
from realm_jax.storage.appendable import has_shards
from realm_jax.storage.flock import exclusive_folder
from realm_jax.storage.integrity import OLD_MANIFEST
from realm_jax.storage.layout import JOURNAL, MANIFEST

EXAMPLE = "realm corpus build --format=text --input='notes/*.txt' --out=runs/notes --workers=2"
EXAMPLE_INSPECT = "realm corpus inspect runs/notes"

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-verbs build, inspect, add, remove and compact."""
    verbs = parser.add_subparsers(
        dest="corpus_verb", required=True, metavar="build|inspect|add|remove|compact"
    )
    add_changes(verbs)
    build = add_verb(verbs, "build", "split text into passages", EXAMPLE)
    add_input(build)
    build.add_argument(
        "--out",
        type=words.on_disk,
        required=True,
        help="new folder, or that of an interrupted build",
    )
    build.add_argument(
        "--vocab",
        type=words.on_disk,
        help="BERT's vocab.txt, or the folder or Hub name of weights; default: learned from the "
        "input",
    )
    build.add_argument(
        "--passage-pieces",
        type=_budget,
        default=PASSAGE_PIECES,
        help="length of the longest passage, in word pieces; default: %(default)s",
    )
    build.add_argument(
        "--workers", type=positive, default=1, help="number of processes; default: %(default)s"
    )
    build.add_argument(
        "--beam",
        type=str,  # may be empty: Beam then runs on this machine
        metavar="OPTIONS",
        help="split on a cluster with Apache Beam and these options (extra [beam]); also writes a "
        "TFDS dataset to OUT.tfds",
    )
    build.add_argument(
        "--knowledge",
        type=words.on_disk,
        help="knowledge corpus Z, if this corpus is only pre-training text X",
    )
    add_dry_run(build)
    add_json(build)
    inspect = add_verb(
        verbs, "inspect", "print counts, lengths and one passage of a corpus", EXAMPLE_INSPECT
    )
    inspect.add_argument("folder", type=words.on_disk, help="a corpus folder")
    inspect.add_argument("--config", help="recipe name or Python file, for the lengths of rows")
    inspect.set_defaults(overridable=ALL)
    inspect.add_argument(
        "--seed", type=natural, default=0, help="seed that selects the passage shown; default: 0"
    )
    add_json(inspect)


def _budget(text: str) -> int:
    """Length of a passage in word pieces."""
    return whole(text, LEAST_PIECES)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds, inspects or changes."""
    runtime.start_interruptible()
    if arguments.corpus_verb == "inspect":
        return _inspect(arguments)
    if arguments.corpus_verb != "build":
        return change_corpus(arguments)
    with checked_input(arguments):
        return _build(arguments)


def _build(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.build import peak_memory
    from realm_jax.corpus.mark_spans import mark_spans

    _check_out(Path(arguments.out))
    if arguments.dry_run:
        from realm_jax.cli.dry_run_corpus import dry_run_build

        return dry_run_build(arguments)
    began, workers = time.monotonic(), arguments.workers
    knowledge = PassageStore.open(arguments.knowledge) if arguments.knowledge else None
    with _building(Path(arguments.out)), _remove_if_failed(Path(arguments.out)):
        report = _passages(arguments, knowledge)
        store = PassageStore.open(arguments.out)
        log.info("%d passages; marking salient spans", report["passages"])
        progress = log_progress("salient spans of %d passages")
        spans = mark_spans(store, knowledge=knowledge, workers=workers, progress=progress)
    report["spans"] = spans.manifest["kinds"]
    report["seconds"] = time.monotonic() - began
    fresh = report["passages"] - report["resumed"]
    report["passages_per_second"] = fresh / report["seconds"]
    report["peak_memory_bytes"] = peak_memory(workers)
    sys.stderr.write(
        f"{things(report['passages'], 'passage')} of {things(report['documents'], 'document')} "
        f"in {arguments.out}; {report_lines(report)}"
        f"salient spans: {_counts(report['spans'])}\n"
    )
    return report


def _counts(kinds: dict[str, int]) -> str:
    """Such as `dates 120, names 3,401`."""
    return ", ".join(f"{kind} {count:,}" for kind, count in kinds.items()) or "none"


def _check_out(out: Path) -> None:
    """Refuses a folder of other files, such as `--out=.`, before any input is read."""
    ours = (MANIFEST, JOURNAL, OLD_MANIFEST)
    if out.is_dir() and any(out.iterdir()) and not any((out / name).exists() for name in ours):
        raise InputError(
            "the output folder holds other files",
            where=f"--out={out}",
            expected="a new folder, an empty one, or that of an interrupted build",
            found=", ".join(sorted(path.name for path in out.iterdir())[:5]),
            fix="choose a new folder, as in --out=corpus",
        )


def _passages(arguments: argparse.Namespace, knowledge: PassageStore | None) -> dict[str, Any]:
    """Builds the passages, unless an earlier build already did and was killed before the spans."""
    from realm_jax.corpus.build import build, was_built_from

    out = Path(arguments.out)
    vocabulary = given_vocabulary(arguments.vocab, knowledge, _beside(arguments.out, LEARNED))
    if (out / MANIFEST).exists():
        store = PassageStore.open(out)
        given = (arguments.format, arguments.input, vocabulary, arguments.passage_pieces)
        add = shlex.join(add_command(arguments))
        if (out / SPANS / MANIFEST).exists():
            raise InputError("the corpus already exists", where=out, fix=EXISTS.format(add))
        if not was_built_from(store, *given, **how(arguments)):
            raise InputError(
                "this build was interrupted before it marked salient spans, and its input or its "
                "flags have changed since",
                where=out,
                expected="the same input and flags, to continue",
                fix=f"{mark_command(out)}, then, to add new documents, {add}; "
                "or delete this folder",
            )
        return store.summary() | {"resumed": len(store)}
    vocabulary = vocabulary or _learn_vocabulary(arguments)
    if arguments.beam is not None:
        return _by_beam(arguments, vocabulary)
    return build(
        arguments.format,
        arguments.input,
        arguments.out,
        vocabulary,
        passage_pieces=arguments.passage_pieces,
        workers=arguments.workers,
        progress=log_progress("%d documents, %d passages"),
        **how(arguments),
    )


def _by_beam(arguments: argparse.Namespace, vocabulary: Path) -> dict[str, Any]:
    if find_spec("apache_beam") is None:
        raise InputError(
            "Apache Beam is not installed", where="--beam", fix="pip install -e '.[beam]'"
        )
    from realm_jax.corpus.beam_builder import build_with_beam
    from realm_jax.corpus.tfds_builder import store_from_tfds

    pieces, data_dir = arguments.passage_pieces, str(_beside(arguments.out, ".tfds"))
    skipped = Skipped()
    folder = build_with_beam(
        arguments.format,
        arguments.input,
        data_dir,
        vocabulary,
        passage_pieces=pieces,
        options=arguments.beam,
        skipped=skipped,
        **how(arguments),
    )
    return store_from_tfds(folder, arguments.out, vocabulary, pieces, skipped) | {"resumed": 0}


def _building(out: Path) -> contextlib.AbstractContextManager[None]:
    """Lets one process at a time write the folder and the vocabulary that it learns."""
    waiting = f"waiting for another command that builds this corpus: {out}"
    return exclusive_folder(out, waiting, "build with one process at a time")


@contextlib.contextmanager
def _remove_if_failed(out: Path) -> Iterator[None]:
    """Deletes the folder of a failed build that cannot be resumed."""
    ours = not out.exists() or not any(out.iterdir())
    try:
        yield
    finally:
        if ours and not (out / MANIFEST).exists() and not has_shards(out):
            shutil.rmtree(out, ignore_errors=True)


def _learn_vocabulary(arguments: argparse.Namespace) -> Path:
    """Learns a word-piece vocabulary from the input; writes it to OUT.vocab.txt.

    Raises:
      InputError: no document has text.
    """
    from realm_jax.corpus.readers import read
    from realm_jax.corpus.store_writer import no_passage
    from realm_jax.text.vocabulary import sample_vocabulary, write_vocabulary

    skipped = Skipped()
    documents = read(arguments.format, arguments.input, skipped, **how(arguments))
    first = next(documents, None)
    if first is None:
        raise no_passage(arguments.out, skipped)
    path = _beside(arguments.out, LEARNED)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (one.title + "\n" + one.text for one in itertools.chain([first], documents))
    log.info("no --vocab: learning a vocabulary from the input, in %s", path)
    write_vocabulary(path, sample_vocabulary(texts))
    return path


def _beside(out: str, ending: str) -> Path:
    """The path of something that is written next to the folder --out, which may be `.`."""
    folder = Path(out)
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}{ending}")


def _inspect(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.inspect import inspect

    lengths = config_lib.load(arguments.config, arguments.overrides).lengths.to_dict()
    report = inspect(PassageStore.open(arguments.folder), lengths, seed=arguments.seed)
    if not arguments.json:
        sys.stdout.write(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return report
