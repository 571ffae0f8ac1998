"""Recognises that the knowledge corpus of a run was built again after its index."""

import io
import os
import shlex
from dataclasses import dataclass

import numpy as np
from etils import epath

from realm_jax.artifacts.run_config import Paths
from realm_jax.corpus.fingerprints import CorpusDifference, difference, fingerprints
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import DamageError, MismatchError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import FINGERPRINTS, RunDir, step_name


@dataclass(frozen=True)
class CorpusChange:
    """The corpus that an index was built from differs from the current one.

    Attributes:
      index: folder of the index.
      corpus: folder of the current corpus.
      before: passages in the index.
      now: passages in the corpus.
      difference: None if the index does not record its passages (of an earlier version).
    """

    index: epath.Path
    corpus: str
    before: int | None
    now: int
    difference: CorpusDifference | None

    def __str__(self) -> str:
        unknown = "its index does not record which"
        counts = unknown if self.difference is None else str(self.difference)
        before = "unknown" if self.before is None else f"{self.before:,}"
        return f"passages: {counts} ({before} before, {self.now:,} now)"

    def error(self, fix: str) -> MismatchError:
        """The error of a command that needs the index; `fix` is the command that builds it."""
        return MismatchError(
            "the knowledge corpus has changed since the index of this run was built",
            where=self.index,
            expected=f"an index of the corpus in {self.corpus}",
            found=str(self),
            fix=fix,
        )


def rebuild_command(workdir: str | os.PathLike[str], paths: Paths) -> str:
    """The command that builds the index of a finished run again."""
    return _command("index", workdir, paths)


def train_command(workdir: str | os.PathLike[str], paths: Paths) -> str:
    """The command that publishes what a finished run lacks: last snapshot, index and export."""
    return _command("run", workdir, paths)


def _command(verb: str, workdir: str | os.PathLike[str], paths: Paths) -> str:
    flags = [f"--config.{key}={path}" for key, path in paths.items()]
    return shlex.join(["realm", verb, f"--workdir={os.fspath(workdir)}", *flags])


def corpus_of(folder: epath.Path) -> str | None:
    """`corpus_hash` of the index that is published in this folder; None if there is none."""
    try:
        manifest = commit.read_manifest(folder)
    except DamageError:
        return None
    return None if manifest is None else manifest.get("corpus_hash")


def is_of_corpus(folder: epath.Path, corpus_hash: str) -> bool:
    """Whether an index is published in this folder, and was built from this generation."""
    return corpus_of(folder) == corpus_hash


def has_index(run: RunDir, step: int, corpus_hash: str) -> bool:
    """Whether a newer index, or the index of this step and this generation, is published."""
    newest = commit.latest(run.published_index)
    newer = newest is not None and newest > step
    return newer or is_of_corpus(run.published_index / step_name(step), corpus_hash)


def has_usable_index(run: RunDir, step: int, store: PassageStore) -> bool:
    """Like `has_index`, for any generation of the corpus."""
    found = corpus_of(run.published_index / step_name(step))
    return found in store.lineage or has_index(run, step, store.corpus_hash)


def corpus_change(run: RunDir, step: int | None, store: PassageStore) -> CorpusChange | None:
    """The change of the corpus since the index of `step` was built.

    Returns:
      None if the corpus is the same or has grown from it (`PassageStore.lineage`), or if there is
      no such index.
    """
    folder = run.published_index / step_name(step or 0)
    if step is None or not commit.is_published(folder):
        return None
    manifest = commit.read_manifest(folder)
    assert manifest is not None
    if manifest.get("corpus_hash") in store.lineage:
        return None
    old = _fingerprints(folder)
    found = None if old is None else difference(old, fingerprints(store))
    before = manifest.get("passages")
    return CorpusChange(folder, str(store.path), before, len(store), found)


def _fingerprints(folder: epath.Path) -> np.ndarray | None:
    """Those in the folder of an index; None if it has none, or they are damaged."""
    content = files.read_bytes(folder / FINGERPRINTS)
    if content is None:
        return None
    try:
        return np.load(io.BytesIO(content), allow_pickle=False).reshape(-1, 2)
    except ValueError:
        return None
