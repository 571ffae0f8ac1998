"""`--dry-run` of `realm corpus build` and `add`, and `realm tag annotate`: checks inputs only."""

import argparse
import shlex
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realm_jax.cli.corpus_input import EXISTS, add_command
from realm_jax.cli.corpus_vocabulary import given_vocabulary
from realm_jax.cli.dry_run import format_bytes
from realm_jax.corpus.input_files import files
from realm_jax.corpus.readers import FILE_FORMATS, read
from realm_jax.corpus.report_lines import report_lines
from realm_jax.corpus.spans import FOLDER as SPANS
from realm_jax.corpus.split import PASSAGE_PIECES, split
from realm_jax.corpus.store import VOCABULARY, PassageStore
from realm_jax.corpus.store_writer import TALLIES, no_passage
from realm_jax.corpus.tally import Skipped
from realm_jax.corpus.worker_pool import batches
from realm_jax.errors import InputError
from realm_jax.monitoring.format import things
from realm_jax.storage.appendable import complete_lines
from realm_jax.storage.disk_space import free_bytes
from realm_jax.storage.layout import JOURNAL, MANIFEST
from realm_jax.text.vocabulary import sample_vocabulary, write_vocabulary
from realm_jax.text.wordpiece import WordPieces

# Measured on long Wikipedia articles at 288 word pieces per passage (benchmarks/RESULTS.md).
_INPUT_BYTES_PER_PASSAGE, _BYTES_PER_PASSAGE, _PASSAGES_PER_SECOND = 1209, 4000, 1538
_COMPRESSED = (".gz", ".xz", ".bz2", ".tar", ".tgz")


def dry_run_build(arguments: argparse.Namespace) -> dict[str, Any]:
    """Checks the arguments of `realm corpus build` and splits the first documents.

    Raises:
      RealmError: the input, vocabulary or output folder cannot be used.
    """
    out = Path(arguments.out)
    if (out / MANIFEST).exists() and (out / SPANS / MANIFEST).exists():
        raise InputError(
            "the corpus already exists",
            where=out,
            fix=EXISTS.format(shlex.join(add_command(arguments))),
        )
    if arguments.beam is not None and find_spec("apache_beam") is None:
        raise InputError(
            "Apache Beam is not installed", where="--beam", fix="pip install -e '.[beam]'"
        )
    knowledge = PassageStore.open(arguments.knowledge) if arguments.knowledge else None
    skipped = Skipped()
    how = {"columns": arguments.columns, "encoding": arguments.encoding}
    documents = read(arguments.format, arguments.input, skipped, **how)
    sample = next(batches(documents), None)
    if sample is None:
        raise no_passage(f"--input {arguments.input}", skipped)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, VOCABULARY)
        vocabulary = given_vocabulary(arguments.vocab, knowledge, path)
        if vocabulary is None:
            vocabulary = path
            write_vocabulary(path, sample_vocabulary(f"{one.title}\n{one.text}" for one in sample))
        remarks = split(sample, WordPieces.load(vocabulary), arguments.passage_pieces).remarks
    skipped.merge(remarks.take("empty_body"))
    report: dict[str, Any] = {
        "dry_run": True,
        "out": str(out),
        "first_document": sample[0].title,
        "documents_tried": len(sample),
        "skipped": dict(skipped),
        "skipped_names": skipped.names,
        "long": dict(remarks),
        "long_names": remarks.names,
        "encodings": dict(skipped.decoded),
        "encodings_names": skipped.decoded.names,
        "vocabulary": arguments.vocab
        or (knowledge and str(knowledge.path))
        or "learned from the input",
        "documents_done": _documents_done(out),
        **_input_sizes(arguments),
        "free_bytes": free_bytes(out),
    }
    return _printed(arguments, report)


def dry_run_annotate(
    arguments: argparse.Namespace, store: PassageStore, out: Path
) -> dict[str, Any]:
    """Counts what `realm tag annotate` would do with an opened corpus."""
    if (out / MANIFEST).exists():
        raise InputError(
            "the spans already exist",
            where=out,
            fix="choose another --out, or delete this folder; a finished one never changes",
        )
    shards = out.with_name(f"{out.name}.shards")
    report = {
        "dry_run": True,
        "out": str(out),
        "passages": len(store),
        "by": arguments.tagger or "capitals, dates, quantities; rare terms where these are few",
        "shards": -(-len(store) // arguments.shard),
        "shards_done": len(list(shards.glob(f"*/{MANIFEST}"))),
        "free_bytes": free_bytes(out),
    }
    return _printed(arguments, report)


def dry_run_add(arguments: argparse.Namespace, store: PassageStore) -> dict[str, Any]:
    """Checks the arguments of `realm corpus add` and splits the first documents.

    Raises:
      RealmError: the input cannot be used.
    """
    skipped = Skipped()
    how = {"columns": arguments.columns, "encoding": arguments.encoding}
    sample = next(batches(read(arguments.format, arguments.input, skipped, **how)), None)
    if sample is None:
        raise no_passage(f"--input {arguments.input}", skipped)
    arguments.passage_pieces = store.manifest.get("passage_pieces") or PASSAGE_PIECES
    words = WordPieces.load(store.path / VOCABULARY)
    remarks = split(sample, words, arguments.passage_pieces).remarks
    skipped.merge(remarks.take("empty_body"))
    tallies = zip(TALLIES, (skipped, remarks, skipped.decoded), strict=True)
    report: dict[str, Any] = {
        "dry_run": True,
        "corpus": str(store.path),
        "generation": store.generation,
        "passages": store.passages(),
        "first_document": sample[0].title,
        "documents_tried": len(sample),
        **{name: dict(tally) for name, tally in tallies},
        "skipped_names": skipped.names,
        "long_names": remarks.names,
        "encodings_names": skipped.decoded.names,
        **_input_sizes(arguments),
        "free_bytes": free_bytes(store.path),
    }
    return _printed(arguments, report)


def _documents_done(out: Path) -> int:
    """Documents that an unfinished build has already processed."""
    journal = complete_lines(out / JOURNAL)
    return journal[-1]["documents"] if len(journal) > 1 else 0


def _input_sizes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Number and size of the input files; for plain text, also an estimate of the corpus."""
    if arguments.format == "tfds":
        return {"files": None}
    found = files(arguments.input, FILE_FORMATS[arguments.format].wanted())
    input_bytes = sum(path.stat().st_size for path in found)
    sizes: dict[str, Any] = {"files": len(found), "input_bytes": input_bytes}
    if any(path.name.endswith(_COMPRESSED) for path in found):
        return sizes
    passages = max(
        1, round(input_bytes / _INPUT_BYTES_PER_PASSAGE * 288 / arguments.passage_pieces)
    )
    return sizes | {
        "passages_about": passages,
        "bytes_about": passages * _BYTES_PER_PASSAGE,
        "core_seconds_about": round(passages / _PASSAGES_PER_SECOND, 1),
    }


def _printed(arguments: argparse.Namespace, report: dict[str, Any]) -> dict[str, Any]:
    """Prints the report, one field per line, and returns it."""
    if not arguments.json:
        shown = {
            key: format_bytes(value) if "bytes" in key and value is not None else value
            for key, value in report.items()
            if key != "dry_run" and key.removesuffix("_names") not in TALLIES
        }
        width = max(map(len, shown))
        lines = [f"{key.replace('_', ' '):<{width}}  {value}\n" for key, value in shown.items()]
        if "skipped" in report:
            tried = things(report["documents_tried"], "document")
            lines.append(f"of the first {tried}: {report_lines(report)}")
        sys.stdout.write("".join(lines) + "the input can be read; nothing was written\n")
    return report
