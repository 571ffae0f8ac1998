"""`realm corpus add` and `remove`: documents of a finished corpus, by the ids of their source."""

import hashlib
import shlex
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from realm_jax.corpus.build import build, was_built_from
from realm_jax.corpus.document_lookup import ever_known, passages_of, texts_in
from realm_jax.corpus.generation_files import PART
from realm_jax.corpus.generation_writer import (
    Change,
    mark_part,
    newest_to_change,
    publish_change,
    staging,
    write_rows,
)
from realm_jax.corpus.generations import GenerationSummary, summary_of
from realm_jax.corpus.split import PASSAGE_PIECES
from realm_jax.corpus.store import VOCABULARY, PassageStore
from realm_jax.errors import InputError
from realm_jax.storage.layout import MANIFEST

_SHOWN = 5  # unknown ids in an error


class Plan(NamedTuple):
    """How split documents become a generation.

    Attributes:
      rows: rows of the split documents that are written, in the order of their ids.
      ids: passage id of each.
      removed: ids of passages of replaced documents that became shorter.
      counts: documents `added`, `replaced` and `removed`.
    """

    rows: Int64[np.ndarray, "R"]
    ids: Int64[np.ndarray, "R"]
    removed: Int64[np.ndarray, "D"]
    counts: dict[str, int]


def add_documents(
    corpus: str | Path,
    format: str,
    input: str,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **how: Any,
) -> tuple[GenerationSummary, dict[str, Any]]:
    """Adds the documents of an input to a corpus; replaces those whose id exists.

    A passage of a replaced document keeps its id and, if its text is the same, is not written
    again. Of documents without id, passages whose text exists are not added again. So the same
    input changes nothing the second time, and the same call finishes a killed one.

    Args:
      corpus: its folder.
      format: see `readers.read`.
      input: see `readers.read`.
      workers: number of processes that split and tokenize.
      progress: called as `progress(documents, passages)`.
      how: `columns` and `encoding`, see `readers.read`.

    Returns:
      The generation, with the numbers of documents; and what `build` returns for the input.

    Raises:
      InputError: see `readers.read` and `write_store`; or there is no corpus in the folder.
    """
    with staging(corpus) as folder:
        store = PassageStore.open(corpus)
        pieces = store.manifest.get("passage_pieces") or PASSAGE_PIECES
        split = folder / _name_of(format, input, how)
        for other in folder.iterdir():
            if other != split:
                shutil.rmtree(other)
        report = _split(store, split, format, input, pieces, workers, progress, how)
        new, part = PassageStore(split), folder / PART
        plan = plan_of(store, new)
        _write_part(store, new, plan.rows, part, workers)
        with newest_to_change(corpus) as newest:
            if newest.generation != store.generation:
                again = plan_of(newest, new)
                if not np.array_equal(again.rows, plan.rows):
                    _write_part(newest, new, again.rows, part, workers)
                plan = again
            result = _published(newest, plan, part)
        shutil.rmtree(folder)
    return summary_of(result, plan.counts), report


def remove_documents(corpus: str | Path, documents: Sequence[str]) -> GenerationSummary:
    """Removes documents, by the ids of their source, with all their passages.

    Documents that were removed before are not an error, so a killed call may be repeated.

    Raises:
      InputError: the corpus never had a document of this id; or no passage would exist.
    """
    wanted = set(documents) - {""}
    with newest_to_change(corpus) as store:
        found = passages_of(store, wanted)
        unknown = sorted(wanted - found.keys() - ever_known(store, wanted - found.keys()))
        if unknown or not wanted:
            raise _unknown(corpus, unknown)
        counts = {"added": 0, "replaced": 0, "removed": len(found)}
        result = store
        if found:
            ids = np.unique(np.concatenate([np.array(one, np.int64) for one in found.values()]))
            result = publish_change(store, Change(None, np.empty(0, np.int64), ids, counts))
    return summary_of(result, counts)


def _unknown(corpus: str | Path, unknown: Sequence[str]) -> InputError:
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return InputError(
        "the corpus has no document with this id; nothing was removed",
        where=corpus,
        expected="ids of documents as the source gives them (_id, id or the path of a file)",
        found=", ".join(unknown[:_SHOWN]) + more or "no id",
        fix="give ids as the source has them; realm corpus inspect "
        f"{shlex.quote(str(corpus))} shows the form of one",
    )


def plan_of(store: PassageStore, new: PassageStore) -> Plan:
    """Compares split documents with a corpus, and gives each passage to write its id."""
    documents = _rows_by_document(new)
    named = {name for name, _ in documents if name}
    existing = passages_of(store, named)
    without_id = [row for name, rows in documents if not name for row in rows]
    present = texts_in(store, new, np.array(without_id, np.int64))
    counts = {"added": 0, "replaced": 0, "removed": 0}
    chosen: list[tuple[int, int]] = []  # id and row
    removed: list[int] = []
    end = len(store)
    for name, rows in documents:
        old = existing.get(name, [])
        both = zip(old, rows, strict=False)
        pairs = [(i, row) for i, row in both if not _same(store, i, new, row)]
        fresh = [row for row in rows[len(old) :] if row not in present]
        pairs += zip(range(end, end + len(fresh)), fresh, strict=True)
        end += len(fresh)
        chosen += pairs
        removed += old[len(rows) :]
        if pairs or old[len(rows) :]:
            counts["replaced" if old else "added"] += 1
    written = np.array(sorted(chosen), np.int64).reshape(-1, 2)
    return Plan(written[:, 1], written[:, 0], np.array(sorted(removed), np.int64), counts)


def _rows_by_document(new: PassageStore) -> list[tuple[str, list[int]]]:
    """Id and rows of each document, in order; documents of one id are one document."""
    numbers = new.documents(np.arange(len(new)))
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(new)]
    found: list[tuple[str, list[int]]] = []
    seen: dict[str, list[int]] = {}
    for start, stop in pairwise(bounds):
        name, rows = new.document_id(start), list(range(start, stop))
        if name in seen:
            seen[name] += rows
            continue
        found.append((name, rows))
        if name:
            seen[name] = rows
    return found


def _same(store: PassageStore, i: int, new: PassageStore, row: int) -> bool:
    return (store.title(i), store.body(i)) == (new.title(row), new.body(row))


def _split(
    store: PassageStore,
    split: Path,
    format: str,
    input: str,
    pieces: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
    how: dict[str, Any],
) -> dict[str, Any]:
    """Splits the input into a corpus in `split`, or finds it there, finished or not."""
    vocabulary = store.path / VOCABULARY
    if (split / MANIFEST).exists():
        found = PassageStore(split)
        if was_built_from(found, format, input, vocabulary, pieces, **how):
            return found.summary()
        shutil.rmtree(split)
    options: Any = {"passage_pieces": pieces, "workers": workers, "progress": progress}
    return build(format, input, split, vocabulary, **options, **how)


def _name_of(format: str, input: str, how: dict[str, Any]) -> str:
    """A name for the split of an input; another one after the input file was changed."""
    path = Path(input)
    changed = path.stat().st_mtime_ns if path.exists() else None
    given = f"{format} {path.absolute()} {changed} {sorted(how.items())}"
    return f"split-{hashlib.sha256(given.encode()).hexdigest()[:12]}"


def _write_part(
    store: PassageStore,
    new: PassageStore,
    rows: Int64[np.ndarray, "R"],
    part: Path,
    workers: int,
) -> None:
    shutil.rmtree(part, ignore_errors=True)
    if len(rows):
        write_rows(store, part, [new], np.zeros(len(rows), np.int32), rows)
        mark_part(store, part, workers)


def _published(newest: PassageStore, plan: Plan, part: Path) -> PassageStore:
    if not len(plan.ids) and not len(plan.removed):
        return newest

    def move(folder: Path) -> None:
        shutil.move(part, folder)

    write = move if len(plan.ids) else None
    return publish_change(newest, Change(write, plan.ids, plan.removed, plan.counts))
