"""Adds, replaces and removes single passages of a finished corpus."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from realm_jax.corpus.generation_writer import (
    Change,
    mark_part,
    newest_to_change,
    publish_change,
)
from realm_jax.corpus.split import block_of
from realm_jax.corpus.store import VOCABULARY, PassageStore
from realm_jax.corpus.store_writer import StoreWriter
from realm_jax.errors import InputError


class WrittenText(NamedTuple):
    """A passage to write.

    Attributes:
      id: of the passage that it replaces, which may be a removed one; None: a new passage.
      title: its title; may be empty.
      body: its text, which is kept as it is.
    """

    id: int | None
    title: str
    body: str


@dataclass(frozen=True)
class GenerationSummary:
    """A generation that was published, or the newest one if the content would be the same.

    Attributes:
      generation: its number.
      corpus_hash: its hash.
      added: passages or documents that it adds.
      replaced: those that it replaces.
      removed: those that it removes.
      passages: number of passages that exist.
      segments: number of generations whose files make it up.
      ids: passage id of each text that was given.
    """

    generation: int
    corpus_hash: str
    added: int
    replaced: int
    removed: int
    passages: int
    segments: int
    ids: tuple[int, ...] = ()


def write_passages_generation(
    corpus: str | Path | PassageStore, written: Sequence[WrittenText], removed: Sequence[int] = ()
) -> GenerationSummary:
    """Publishes a generation of a corpus in which passages are written and removed.

    All of it becomes visible at once. A passage keeps the document of the one that it replaces; a
    new one has no document id. Texts that are equal to those in the corpus are not written again;
    if nothing changes, no generation is published.

    Args:
      corpus: its folder, or any generation of it.
      written: at most one text for an id; each becomes one sentence.
      removed: ids of passages that exist.

    Raises:
      InputError: a text has no word pieces, an id does not exist, or no passage would exist.
    """
    with newest_to_change(corpus) as store:
        _check_ids(store, written, removed)
        ids, end = [], len(store)
        for text in written:
            ids.append(end if text.id is None else text.id)
            end = max(end, ids[-1] + 1)
        new = [(i, text) for i, text in zip(ids, written, strict=True) if not _is_in(store, text)]
        counts = {"added": 0, "replaced": 0, "removed": len(set(removed))}
        for _, text in new:
            counts["replaced" if _exists(store, text.id) else "added"] += 1
        result = store
        if new or counts["removed"]:
            result = publish_change(store, _change(store, sorted(new), removed, counts))
    return summary_of(result, counts, tuple(ids))


def summary_of(
    store: PassageStore, counts: dict[str, int], ids: tuple[int, ...] = ()
) -> GenerationSummary:
    """The summary of a generation; `counts`: `added`, `replaced` and `removed`."""
    return GenerationSummary(
        generation=store.generation,
        corpus_hash=store.corpus_hash,
        passages=store.passages(),
        segments=len(store.layers),
        ids=ids,
        **counts,
    )


def _change(
    store: PassageStore,
    new: list[tuple[int, WrittenText]],
    removed: Sequence[int],
    counts: dict[str, int],
) -> Change:
    ids = np.array([i for i, _ in new], np.int64)
    owners = [store.document_id(i) if i < len(store) else "" for i in ids.tolist()]

    def write(folder: Path) -> None:
        writer = StoreWriter(folder, store.path / VOCABULARY)
        try:
            block = block_of([(text.title, [text.body]) for _, text in new], writer.tokenizer)
            writer.append(replace(block, document_ids=owners))
            writer.commit()
        finally:
            writer.close()
        mark_part(store, folder)

    return Change(write if new else None, ids, np.unique(np.array(removed, np.int64)), counts)


def _is_in(store: PassageStore, text: WrittenText) -> bool:
    i = text.id
    return i is not None and _exists(store, i) and (store.title(i), store.body(i)) == text[1:]


def _exists(store: PassageStore, i: int | None) -> bool:
    return i is not None and bool(store.is_live(np.array([i]))[0])


def _check_ids(store: PassageStore, written: Sequence[WrittenText], removed: Sequence[int]) -> None:
    replaced = [text.id for text in written if text.id is not None]
    unknown = [i for i in replaced if not 0 <= i < len(store)]
    unknown += [i for i in removed if not _exists(store, i)]
    if unknown:
        raise InputError(
            "no such passage",
            where=store.path,
            expected=f"ids of passages that exist, below {len(store)}",
            found=", ".join(map(str, unknown[:5])),
        )
    counts = Counter(replaced)
    twice = sorted({i for i in counts if counts[i] > 1} | counts.keys() & set(removed))
    if twice:
        raise InputError(
            "two changes of one passage",
            where=store.path,
            expected="one text for each id, which is not removed at the same time",
            found=", ".join(map(str, twice[:5])),
        )
    for text in written:
        _check_text(store, text)


def _check_text(store: PassageStore, text: WrittenText) -> None:
    """Before anything is written."""
    if not len(store.vocabulary.pieces([text.body])[0][0]):
        raise InputError(
            "passage without text",
            where=store.path,
            expected="at least one word piece in each passage",
            found=repr(text.body[:80]),
        )
