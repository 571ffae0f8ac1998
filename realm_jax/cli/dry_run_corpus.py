"""`--dry-run` of what makes corpora and their spans; reads the beginning, writes nothing."""

import argparse
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realm_jax.cli.dry_run import format_bytes
from realm_jax.corpus.input_files import files
from realm_jax.corpus.readers import SUFFIXES, read
from realm_jax.corpus.spans import FOLDER as SPANS
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.storage.appendable import complete_lines
from realm_jax.storage.disk_space import free_bytes
from realm_jax.storage.layout import JOURNAL, MANIFEST
from realm_jax.text.wordpiece import WordPieces

# Of benchmarks/RESULTS.md, on long articles of Wikipedia at 288 pieces.
_TEXT_A_PASSAGE, _BYTES_A_PASSAGE, _PASSAGES_A_SECOND = 1209, 4000, 1538
_PACKED = (".gz", ".xz", ".bz2", ".tar", ".tgz")


def dry_run_build(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `realm corpus build` would do; the first document is read.

    Raises:
      RealmError: input, vocabulary or folder could not be used.
    """
    out = Path(arguments.out)
    if (out / MANIFEST).exists() and (out / SPANS / MANIFEST).exists():
        raise InputError(
            "the corpus exists already",
            where=out,
            fix="choose another --out, or delete this folder: finished ones never change",
        )
    if arguments.beam is not None and find_spec("apache_beam") is None:
        raise InputError(
            "Apache Beam is not installed", where="--beam", fix="pip install -e '.[beam]'"
        )
    knowledge = PassageStore.open(arguments.knowledge) if arguments.knowledge else None
    if arguments.vocab:
        WordPieces.load(arguments.vocab)
    skipped: Counter[str] = Counter()
    first = next(read(arguments.format, arguments.input, skipped), None)
    if first is None:
        raise InputError("no document", where=f"--input {arguments.input}", found=dict(skipped))
    report: dict[str, Any] = {
        "dry_run": True,
        "out": str(out),
        "first_document": first.title,
        "vocabulary": arguments.vocab or (knowledge and str(knowledge.path)) or "learnt from it",
        "documents_done": _documents_done(out),
        **_input_sizes(arguments),
        "free_bytes": free_bytes(out),
    }
    return _told(arguments, report)


def dry_run_annotate(
    arguments: argparse.Namespace, store: PassageStore, out: Path
) -> dict[str, Any]:
    """What `realm tag annotate` would do, its corpus and its tagger opened already."""
    if (out / MANIFEST).exists():
        raise InputError(
            "the spans exist already",
            where=out,
            fix="choose another --out, or delete this folder: finished ones never change",
        )
    shards = out.with_name(f"{out.name}.shards")
    report = {
        "dry_run": True,
        "out": str(out),
        "passages": len(store),
        "by": arguments.tagger or "capitals and dates",
        "shards": -(-len(store) // arguments.shard),
        "shards_done": len(list(shards.glob(f"*/{MANIFEST}"))),
        "free_bytes": free_bytes(out),
    }
    return _told(arguments, report)


def _documents_done(out: Path) -> int:
    """Of an unfinished build."""
    journal = complete_lines(out / JOURNAL)
    return journal[-1]["documents"] if len(journal) > 1 else 0


def _input_sizes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Files and bytes; for plain text what becomes of them, reckoned from text of Wikipedia."""
    if arguments.format == "tfds":
        return {"files": None}
    found = files(arguments.input, SUFFIXES.get(arguments.format, ""))
    held = sum(path.stat().st_size for path in found)
    sizes: dict[str, Any] = {"files": len(found), "input_bytes": held}
    if any(path.name.endswith(_PACKED) for path in found):
        return sizes
    passages = max(1, round(held / _TEXT_A_PASSAGE * 288 / arguments.passage_pieces))
    return sizes | {
        "passages_about": passages,
        "bytes_about": passages * _BYTES_A_PASSAGE,
        "core_seconds_about": round(passages / _PASSAGES_A_SECOND, 1),
    }


def _told(arguments: argparse.Namespace, report: dict[str, Any]) -> dict[str, Any]:
    """Prints every figure by its name."""
    if not arguments.json:
        shown = {
            key: format_bytes(value) if "bytes" in key and value is not None else value
            for key, value in report.items()
            if key != "dry_run"
        }
        width = max(map(len, shown))
        lines = [f"{key.replace('_', ' '):<{width}}  {value}\n" for key, value in shown.items()]
        sys.stdout.write("".join(lines) + "the input can be read; nothing was written\n")
    return report
