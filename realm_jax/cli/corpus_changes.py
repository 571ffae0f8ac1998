"""`realm corpus add`, `remove` and `compact`: changes of a finished corpus."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from realm_jax.cli import words
from realm_jax.cli.arguments import Once, add_dry_run, add_json, add_verb, positive
from realm_jax.cli.corpus_input import add_input, checked_input, how, log_progress
from realm_jax.corpus.generations import GenerationSummary
from realm_jax.corpus.report_lines import report_lines
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.monitoring.format import things
from realm_jax.storage import files
from realm_jax.storage.disk_space import free_bytes
from realm_jax.storage.layout import path_of

EXAMPLE_ADD = "realm corpus add --to=runs/notes --format=text --input='new/*.txt'"
EXAMPLE_REMOVE = "realm corpus remove --from=runs/notes --ids=new/Bergen.txt"
EXAMPLE_COMPACT = "realm corpus compact runs/notes"
_FIELDS = ("generation", "added", "replaced", "removed", "passages", "segments")


def add_changes(verbs: Any) -> None:
    """Adds the sub-verbs add, remove and compact."""
    add = add_verb(
        verbs, "add", "add documents to a corpus; one whose id exists is replaced", EXAMPLE_ADD
    )
    add.add_argument(
        "--to", type=words.on_disk, required=True, metavar="CORPUS", help="the corpus to change"
    )
    add_input(add)
    add.add_argument(
        "--workers", type=positive, default=1, help="number of processes; default: %(default)s"
    )
    remove = add_verb(verbs, "remove", "remove documents from a corpus", EXAMPLE_REMOVE)
    remove.add_argument(
        "--from",
        dest="of",
        type=words.on_disk,
        required=True,
        metavar="CORPUS",
        help="the corpus to change",
    )
    named = remove.add_mutually_exclusive_group(required=True)
    named.add_argument(
        "--ids",
        action="append",
        type=words.text,
        help="ids of the documents as their source gives them: a,b (ids with a comma: --ids-file); "
        "may be repeated",
    )
    named.add_argument(
        "--ids-file", action=Once, help="a file with one id per line; - for standard input"
    )
    compact = add_verb(
        verbs,
        "compact",
        "delete the texts of removed and replaced documents from the disk",
        EXAMPLE_COMPACT,
    )
    compact.add_argument("folder", type=words.on_disk, help="the corpus to change")
    for one in (add, remove, compact):
        add_dry_run(one)
        add_json(one)


def change_corpus(arguments: argparse.Namespace) -> dict[str, Any]:
    """Adds, removes or compacts."""
    if arguments.corpus_verb == "remove":
        return _remove(arguments)
    if arguments.corpus_verb == "compact":
        return _compact(arguments)
    with checked_input(arguments):
        return _add(arguments)


def _add(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.grow import add_documents

    if arguments.dry_run:
        from realm_jax.cli.dry_run_corpus import dry_run_add

        return dry_run_add(arguments, PassageStore.open(arguments.to))
    summary, report = add_documents(
        arguments.to,
        arguments.format,
        arguments.input,
        workers=arguments.workers,
        progress=log_progress("%d documents, %d passages"),
        **how(arguments),
    )
    sys.stderr.write(f"{_line(summary, arguments.to)}; {report_lines(report)}")
    about_input = ("skipped", "long", "encodings")
    of_input = {key: report[key] for key in report if key.removesuffix("_names") in about_input}
    return {**_fields(summary), **of_input}


def _remove(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.document_lookup import passages_of
    from realm_jax.corpus.grow import remove_documents

    ids = _ids(arguments)
    if arguments.dry_run:
        store = PassageStore.open(arguments.of)
        found = passages_of(store, set(ids))
        passages = sum(map(len, found.values()))
        sys.stderr.write(
            f"would remove {things(len(found), 'document')} of {len(set(ids))} with "
            f"{things(passages, 'passage')} from {arguments.of}; nothing was written\n"
        )
        return {"dry_run": True, "removed": len(found), "passages": store.passages() - passages}
    summary = remove_documents(arguments.of, ids)
    sys.stderr.write(
        f"{_line(summary, arguments.of)}\n"
        "the files still hold the texts; to delete them: realm corpus compact "
        f"{shlex.quote(arguments.of)}\n"
    )
    return _fields(summary)


def _ids(arguments: argparse.Namespace) -> list[str]:
    if arguments.ids is not None:
        return [one.strip() for one in ",".join(arguments.ids).split(",") if one.strip()]
    name = arguments.ids_file
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the file of ids cannot be read",
            where="standard input" if name == "-" else name,
            expected="UTF-8 text with one document id per line",
            found=error,
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _compact(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.compaction import compact

    if arguments.dry_run:
        store = PassageStore.open(arguments.folder)
        size = sum(files.sizes(path_of(arguments.folder)).values())
        report = {
            "dry_run": True,
            "generation": store.generation,
            "passages": store.passages(),
            "segments": len(store.layers),
            "bytes": size,
            "free_bytes": free_bytes(store.path),
        }
        sys.stderr.write(
            f"would merge {things(len(store.layers), 'segment')} of {arguments.folder}: needs at "
            f"most {size:,} bytes, free are {report['free_bytes']:,}; nothing was written\n"
        )
        return report
    summary = compact(arguments.folder)
    sys.stderr.write(
        f"{_line(summary, arguments.folder)}; the texts of removed and replaced documents are "
        "deleted from this folder\n"
    )
    return _fields(summary)


def _line(summary: GenerationSummary, corpus: str) -> str:
    return (
        f"generation {summary.generation} of {corpus}: {summary.added:,} added, "
        f"{summary.replaced:,} replaced, {summary.removed:,} removed; "
        f"{things(summary.passages, 'passage')} in {things(summary.segments, 'segment')}"
    )


def _fields(summary: GenerationSummary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in _FIELDS}
