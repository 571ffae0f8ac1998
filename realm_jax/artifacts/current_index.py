"""The index of a finished run as it is now: the published one, and what was added since."""

import logging
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int64

from realm_jax.artifacts.index_update import (
    BASE,
    IndexUpdate,
    base_segment,
    join,
    newest_update,
    update_of,
)
from realm_jax.artifacts.published_index import PublishedIndex, open_index
from realm_jax.artifacts.run_config import NO_PATHS, Paths
from realm_jax.artifacts.segments import Segment, open_segment
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.storage import commit
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name

_TRIES = 5  # to open what a writer deletes at the same time

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CurrentIndex:
    """The index of a finished run, and its corpus.

    Attributes:
      index: what is searched: the passages that have not changed since the index was brought up to
        date.
      store: the newest generation of the corpus.
      base: the published index.
      segments: those that are searched, oldest first; the first one is that of `base`.
      removed: ids, ascending, whose vectors are in a segment and must not be found.
      number: of the newest index update; 0: there is none.
      corpus_hash: of the generation of the corpus that the index covers.
      pending: ids, ascending, of passages that were written or removed after that generation.
    """

    index: PublishedIndex
    store: PassageStore
    base: PublishedIndex
    segments: tuple[Segment, ...]
    removed: Int64[np.ndarray, "R"]
    number: int
    corpus_hash: str
    pending: Int64[np.ndarray, "P"]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the segments."""
        return tuple(segment.name for segment in self.segments)

    @property
    def missing(self) -> Int64[np.ndarray, "M"]:
        """Ids, ascending, of the passages of the corpus that the index does not find."""
        return self.pending[self.store.is_live(self.pending)]


class MissingIndexError(InputError):
    """The published index of an export is being replaced, or was deleted."""


def up_to_date_command(workdir: str | os.PathLike[str], paths: Paths = NO_PATHS) -> str:
    """The command that brings the index of a finished run up to date."""
    flags = [f"--config.{key}={path}" for key, path in paths.items()]
    return shlex.join(["realm", "index", f"--workdir={os.fspath(workdir)}", "--once", *flags])


def open_current(
    run: RunDir,
    index_step: int,
    store: PassageStore,
    expect: Mapping[str, Any] | None = None,
    before: CurrentIndex | None = None,
) -> CurrentIndex:
    """Opens a published index with the newest update of it.

    Passages that have changed since are not found, so a deleted text is never shown.

    Args:
      run: the run folder.
      index_step: of the published index.
      store: the newest generation of the corpus; its lineage includes the corpus of the published
        index (`corpus_change`).
      expect: see `open_index`.
      before: what was opened earlier; what has not changed since is not opened again.

    Raises:
      MissingIndexError: there is no index of this step.
      DamageError: a file is damaged; the error names it.
    """
    folder, tries = run.published_index / step_name(index_step), _TRIES
    while True:
        tries -= 1
        try:
            return _open_current(run, index_step, store, expect, before)
        except NotPublishedError as error:
            if not commit.is_published(folder):
                command = up_to_date_command(run.workdir)
                raise MissingIndexError(
                    "the index of the newest export is missing",
                    where=folder,
                    expected=error.expected,
                    found="no index: `realm index --once` is replacing it or was killed, or it was "
                    "deleted, for example by `realm check --repair`",
                    fix=f"build it again, or wait until this command has ended: {command}",
                ) from error
            if not tries:  # the newest update may have been replaced meanwhile
                raise


def newest_or_before(run: RunDir, before: CurrentIndex) -> CurrentIndex:
    """The index as it is now; `before`, with a warning, while there is no published index."""
    try:
        return open_current(run, before.base.step, before.store.newest(), before=before)
    except MissingIndexError as error:
        log.warning("answering with the index as it was before: %s", error)
        return before


def _open_current(
    run: RunDir,
    index_step: int,
    store: PassageStore,
    expect: Mapping[str, Any] | None,
    before: CurrentIndex | None,
) -> CurrentIndex:
    update = newest_update(run, index_step)
    if update is not None and update.corpus_hash not in store.lineage:
        store = store.newest()  # it has grown since it was opened
    base = _open_base(run, index_step, expect, before)
    chosen = update
    if update is None or not _is_newer(update, base, store):
        chosen = update_of(base)
    assert chosen is not None
    segments = tuple(_segments(run, base, chosen.segments, before))
    pending = store.changed_since(store.generation_of(chosen.corpus_hash))
    shown = replace(chosen, removed=np.union1d(chosen.removed, pending))
    return CurrentIndex(
        index=join(base, shown, segments),
        store=store,
        base=base,
        segments=segments,
        removed=chosen.removed,
        number=0 if update is None else update.number,
        corpus_hash=chosen.corpus_hash,
        pending=pending,
    )


def _open_base(
    run: RunDir, step: int, expect: Mapping[str, Any] | None, before: CurrentIndex | None
) -> PublishedIndex:
    folder = run.published_index / step_name(step)
    manifest = None if before is None else commit.read_manifest(folder)
    if before is not None and manifest == before.base.manifest:
        return before.base
    return open_index(folder, expect)


def _segments(
    run: RunDir, base: PublishedIndex, names: Iterable[str], before: CurrentIndex | None
) -> Iterator[Segment]:
    known = {} if before is None else {segment.name: segment for segment in before.segments}
    known[BASE] = base_segment(base)
    for name in names:
        yield known[name] if name in known else open_segment(run, name)


def _is_newer(update: IndexUpdate, base: PublishedIndex, store: PassageStore) -> bool:
    """Whether an update covers a later generation than the published index itself."""
    lineage, of_base = store.lineage, base.manifest["corpus_hash"]
    if update.corpus_hash not in lineage:
        return False
    return of_base not in lineage or lineage.index(of_base) < lineage.index(update.corpus_hash)


def check_coverage(current: CurrentIndex, command: str) -> None:
    """Warns if passages have changed since the index was brought up to date.

    Args:
      current: the opened index.
      command: that brings it up to date.

    Raises:
      InputError: every passage has changed.
    """
    if not current.index.searcher.size:
        raise InputError(
            "every passage of the corpus has changed since the index was brought up to date",
            where=current.store.path,
            expected="at least one passage that the index covers",
            found="none",
            fix=command,
        )
    if len(current.missing):
        log.warning(
            "%d passages of the corpus are not found: they were written after the index of this "
            "run was brought up to date; run: %s",
            len(current.missing),
            command,
        )
