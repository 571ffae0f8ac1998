"""Deletes generations of a corpus that the newest one does not need."""

from collections.abc import Set
from pathlib import Path

from etils import epath

from realm_jax.corpus.generation_files import (
    finished_generations,
    folder_of,
    parent_of,
    read_generation,
)
from realm_jax.corpus.store import VOCABULARY
from realm_jax.corpus.store_writer import NAMES
from realm_jax.storage import commit, files
from realm_jax.storage.appendable import is_cut_short
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import BM25, MANIFEST, step_of

KEPT_GENERATIONS = 64  # that stay readable when the files of a corpus are merged


def delete_merged(corpus: str | Path, newest: int) -> None:
    """Deletes what only generations need that are older than the newest KEPT_GENERATIONS."""
    recent = [one for one in finished_generations(corpus) if one > newest - KEPT_GENERATIONS]
    needed = {layer for one in recent for layer in read_generation(corpus, one)["layers"]}
    _delete_except(corpus, needed | {*recent})


def delete_older(corpus: str | Path, layers: Set[int]) -> None:
    """Deletes the files of all generations but `layers`, which make up the newest one.

    The index of words is deleted too, since it holds words of removed passages; its next use builds
    it again. The manifest and the vocabulary of the first generation stay.
    """
    _delete_except(corpus, layers)
    folder = epath.Path(corpus)
    files.delete_file(folder / BM25 / MANIFEST)
    files.delete_tree(folder / BM25)
    if 1 in layers:
        return
    commit.list_fewer_files(folder, {VOCABULARY}, compacted=True)
    failpoint("corpus.unlisted")
    cut_short = [name for name in files.list_names(folder) if is_cut_short(name)]
    for name in (*NAMES, *cut_short):
        if name != VOCABULARY:
            files.delete_file(folder / name)


def _delete_except(corpus: str | Path, kept: Set[int]) -> None:
    """Deletes the other folders of generations, also unfinished ones."""
    for name in files.list_names(parent_of(corpus)):
        generation = step_of(name)
        if generation is not None and generation not in kept:
            folder = epath.Path(folder_of(corpus, generation))
            # Without a manifest it does not exist, also if this process is killed now.
            files.delete_file(folder / MANIFEST)
            failpoint("corpus.unlisted")
            files.delete_tree(folder)
