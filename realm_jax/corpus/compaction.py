"""`realm corpus compact`: one folder for all generations, without removed and replaced texts."""

import shutil
from pathlib import Path

import numpy as np
from jaxtyping import Int32, Int64

from realm_jax.corpus.copy_rows import NO_PART
from realm_jax.corpus.generation_files import PART
from realm_jax.corpus.generation_retention import delete_older
from realm_jax.corpus.generation_writer import (
    NO_COUNTS,
    newest_to_change,
    publish_compacted,
    staging,
    write_rows,
)
from realm_jax.corpus.generations import GenerationSummary, summary_of
from realm_jax.corpus.store import PassageStore


def compact(corpus: str | Path) -> GenerationSummary:
    """Merges all generations of a corpus into one, and deletes the files of all earlier ones.

    Afterwards no file in the folder holds the text of a removed or replaced passage. Passage ids,
    `corpus_hash` and `lineage` stay. Needs free space for a copy of the corpus.

    Generations that another process publishes meanwhile stay on top of the compacted one; their
    removals apply to the files at the next compaction.

    Raises:
      InputError: see `PassageStore.open`.
      DamageError: a file of a generation is damaged.
    """
    with staging(corpus) as folder:
        store, part = PassageStore.open(corpus), folder / PART
        if len(store.layers) > 1:
            shutil.rmtree(part, ignore_errors=True)
            stores, of_id, row = _rows_of_ids(store)
            write_rows(store, part, stores, of_id, row)
            with newest_to_change(corpus) as newest:
                publish_compacted(newest, store, part, np.flatnonzero(of_id == NO_PART))
        with newest_to_change(corpus) as newest:
            if newest.generation > 1:
                delete_older(corpus, set(newest.layers))
            shutil.rmtree(folder)
            return summary_of(newest, NO_COUNTS)


def _rows_of_ids(
    store: PassageStore,
) -> tuple[list[PassageStore], Int32[np.ndarray, "N"], Int64[np.ndarray, "N"]]:
    """The folders of a corpus; the number of the folder of each passage, and its row there."""
    of_id, row = np.full(len(store), NO_PART, np.int32), np.zeros(len(store), np.int64)
    stores: list[PassageStore] = []
    for part in store.parts():
        of_id[part.ids], row[part.ids] = len(stores), part.rows
        stores.append(part.store)
    return stores, of_id, row
