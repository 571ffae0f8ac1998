"""Makes segments of an index one after the other, so that memory is bounded by one segment."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from etils import epath
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import KIND as INDEX
from realm_jax.errors import DamageError, MismatchError
from realm_jax.index_builder.build import FittedSearcher, Trained, fit
from realm_jax.index_builder.built_segments import (
    KIND,
    is_finished,
    segment_bounds,
    segment_folder,
    segment_search,
    settings_of,
    write_hits,
)
from realm_jax.index_builder.embed_corpus import Progress, embed_corpus
from realm_jax.index_builder.passage_embedder import PassageEmbedder
from realm_jax.index_builder.recall import Probes, passage_rows, require_floor
from realm_jax.index_builder.rolling import NONE, kept_index
from realm_jax.index_builder.work_order import WorkOrder
from realm_jax.retrieval.searcher import load_searcher
from realm_jax.retrieval.segmented_searcher import segment_folders
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import SEARCHER, VECTORS, RunDir, step_name
from realm_jax.storage.locks import still_allowed
from realm_jax.storage.staging import local_to_write

log = logging.getLogger(__name__)


class SegmentMaker:
    """Makes segments of the index of one snapshot.

    Args:
      run: the run folder, with the last index.
      config: see `refresh_config`.
      embedder: of the snapshot, over the corpus.
      order: the work order.

    Attributes:
      bounds: see `segment_bounds`.
      settings: see `settings_of`.
      kept: the index whose segments are kept (`rolling`); None: all segments are made.
      numbers: of the segments to make.
      queries: [B, E], the probe queries of the snapshot.
    """

    def __init__(
        self, run: RunDir, config: ConfigDict, embedder: PassageEmbedder, order: WorkOrder
    ):
        self._run, self._step, self._embedder = run, order.step, embedder
        self._corpus_hash = order.corpus_hash
        self.bounds = segment_bounds(len(embedder.ids), config)
        self._config = config.copy_and_resolve_references()
        self._config.search = segment_search(config, len(embedder.ids))
        self.settings = settings_of(config, order.corpus_hash)
        self.kept = None if order.kept == NONE else kept_index(run, order.kept, self.settings)
        self.numbers = list(range(len(self.bounds)))
        if self.kept is not None:
            most = config.refresh.segment_max_age
            self.numbers = self.kept.to_make(order.workers, order.step, most)
        self.queries = embedder.probes()
        rows = passage_rows(len(embedder.ids), config.builder.probes)
        self._passages = embedder.embed(embedder.ids[rows])

    def unfinished(self, numbers: Iterable[int]) -> list[int]:
        """Which of these segments no worker has finished; one listing, and a read for each new."""
        present = set(files.list_names(self._run.shards(self._step)))
        return [
            number
            for number in numbers
            if self.folder(number).name not in present
            or not is_finished(self.folder(number), self.settings)
        ]

    def make(self, number: int, stop: threading.Event, progress: Progress) -> None:
        """Embeds a segment, builds its searcher, saves both and deletes its shards.

        Args:
          number: of the segment.
          stop: checked between shards; if it is that of a job lock, also before anything is stored.
          progress: called with the number of passages of this segment that are embedded.

        Raises:
          Stopped: `stop` was set; finished shards are kept.
          RealmError: the recall is below `builder.recall_floor`.
        """
        log.info("segment %d of %d: %d passages", number + 1, len(self.bounds), self.size(number))
        # Named by its rows: other settings divide the corpus into other segments.
        rows = "{:010d}_{:010d}".format(*self.bounds[number])
        shards = self._run.shards(self._step) / f"shards_{rows}"
        self._make(number, shards, stop, progress)
        files.delete_tree(shards)  # their memory map was freed when the call returned

    def _make(
        self, number: int, shards: epath.Path, stop: threading.Event, progress: Progress
    ) -> None:
        """Embeds a segment, builds its searcher and saves both."""
        began, (start, end) = time.monotonic(), self.bounds[number]
        ids = self._embedder.ids[start:end]
        given = (self._config, ids, self._embedder.embed, shards, self._corpus_hash)
        vectors = embed_corpus(*given, stop, progress)
        embedded = time.monotonic()
        probes = Probes(vectors, self.queries)
        fitted = fit(self._step, self._config, vectors, probes, lambda: self._last(number))
        where = f"segment {number} of the index of step {self._step}"
        require_floor(fitted.recall, self._config.builder.recall_floor, where)
        self._write(number, vectors, probes, fitted, embedded - began, still_allowed(stop))

    def size(self, number: int) -> int:
        """Passages of a segment."""
        start, stop = self.bounds[number]
        return stop - start

    def folder(self, number: int) -> epath.Path:
        """The folder of a finished segment."""
        return segment_folder(self._run, self._step, number)

    def _write(
        self,
        number: int,
        vectors: Float32[np.ndarray, "N E"],
        probes: Probes,
        fitted: FittedSearcher,
        seconds_embed: float,
        allowed: Callable[[], None],
    ) -> None:
        folder = self.folder(number)
        asked = probes.hits(fitted.searcher)
        passages = Probes(vectors, self._passages).hits(fitted.searcher)
        seconds = {
            "seconds_embed": seconds_embed,
            "seconds_build": fitted.built - fitted.began,
            "seconds_check": time.monotonic() - fitted.built,
        }
        allowed()
        files.delete_tree(folder)
        with local_to_write(folder, allowed) as place:
            with files.external_write(place):
                # On NFS the folder may still hold open files of a deleted searcher.
                Path(place / SEARCHER).mkdir(parents=True, exist_ok=True)
                fitted.searcher.save(Path(place / SEARCHER))
                write_hits(Path(place), asked, passages)
            files.write_array(place / VECTORS, vectors, np.float16)
            measured = commit.measure(place, sync=place == folder)
        allowed()
        trained = {"snapshot_step": self._step, **fitted.trained}
        fields = {"kind": KIND, "settings": self.settings, "trained": trained}
        commit.write_manifest(folder, {**fields, "seconds": seconds}, measured)
        failpoint("segment.finished")

    def _last(self, number: int) -> Trained | None:
        """The same segment of the newest index, if that index has the same segments."""
        newest = commit.latest(self._run.published_index)
        if newest is None:
            return None
        folder = self._run.published_index / step_name(newest)
        count = len(self.bounds)
        part = str(segment_folders(Path(SEARCHER), count)[number])
        others = functools.partial(_is_outside, part)
        try:
            with integrity.verified(folder, INDEX, others) as (copy, manifest):
                trained = manifest.get("segments", [])
                if manifest.get("corpus_hash") != self._corpus_hash or len(trained) != count:
                    return None
                return Trained(load_searcher(Path(copy / part)), trained[number])
        except (DamageError, MismatchError, NotPublishedError) as error:
            log.warning(
                "segment %d of step %d cannot be re-encoded; building a new one:\n%s",
                number,
                newest,
                error,
            )
            return None


def _is_outside(folder: str, name: str) -> bool:
    return not name.startswith(f"{folder}/")
