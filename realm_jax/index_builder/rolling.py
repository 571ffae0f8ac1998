"""`refresh.mode=rolling`: a refresh makes one segment of each worker, and keeps the others.

Queries are embedded with the parameters of the newest snapshot; the vectors of a kept segment are
of the snapshot that its entry in the manifest names.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from realm_jax.artifacts.published_index import KIND
from realm_jax.errors import DamageError
from realm_jax.index_builder.built_segments import Segment
from realm_jax.retrieval.saved_searcher import SavedSearcher
from realm_jax.retrieval.segmented_searcher import segment_folders
from realm_jax.storage import commit, integrity
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import SEARCHER, VECTORS, RunDir, step_name

NONE = -1  # step of no index
_SECONDS = ("seconds_embed", "seconds_build", "seconds_check")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptIndex:
    """The last index, whose segments are kept except those that `to_make` chooses.

    Attributes:
      step: of the index.
      entries: of its segments, in its manifest.
    """

    step: int
    entries: list[dict[str, Any]]

    def to_make(self, workers: int, step: int, max_age: int) -> list[int]:
        """The segments to make, one of each worker.

        A segment older than `max_age` comes first, the oldest before all others. Else it is the
        segment whose hits are most out of date: the number of probe hits times the age. In a tie,
        the oldest, then the first.

        Args:
          workers: number of workers; segment s belongs to worker s % workers.
          step: of the snapshot of this refresh. An age is a difference to it, in steps.
          max_age: `refresh.segment_max_age`.
        """
        count = len(self.entries)
        own = [range(worker, count, workers) for worker in range(min(workers, count))]

        def priority(number: int) -> tuple[int, int, int]:
            entry = self.entries[number]
            age = step - entry["snapshot_step"]
            return max(0, age - max_age), entry.get("probe_hits", 0) * age, age

        return sorted(max(numbers, key=priority) for numbers in own)


def newest_to_keep(run: RunDir, before: int, settings: str) -> int:
    """Step of the newest index, verified.

    NONE if there is none, or it is not older than `before`, or is damaged or of other settings.
    """
    newest = commit.latest(run.published_index)
    if newest is None or newest >= before or kept_index(run, newest, settings) is None:
        return NONE
    try:
        integrity.read_verified(run.published_index / step_name(newest), KIND)
    except (DamageError, NotPublishedError) as error:
        log.warning("the index of step %d is not kept; all segments are made:\n%s", newest, error)
        return NONE
    return newest


def kept_index(run: RunDir, step: int, settings: str) -> KeptIndex | None:
    """The index of `step`; None if it is not published, or its segments are of other settings.

    Args:
      run: the run folder.
      step: of the index.
      settings: see `built_segments.settings_of`.
    """
    try:
        manifest = commit.read_manifest(run.published_index / step_name(step))
    except DamageError:
        return None
    if manifest is None or manifest.get("segment_settings") != settings:
        return None
    return KeptIndex(step, manifest["segments"])


def open_kept(copy: epath.Path, kept: KeptIndex, number: int, bounds: tuple[int, int]) -> Segment:
    """A segment of the last index.

    It has no hits: its recall was measured when it was made, with queries of the same snapshot.

    Args:
      copy: where the files of the index are.
      kept: the index.
      number: of the segment.
      bounds: its first row, and the row after its last.
    """
    folder = segment_folders(Path(copy / SEARCHER), len(kept.entries))[number]
    vectors = np.load(copy / VECTORS, mmap_mode="r")[slice(*bounds)]
    nothing = dict.fromkeys(_SECONDS, 0.0)
    return Segment(SavedSearcher(folder), vectors, None, None, kept.entries[number], nothing)
