"""Embeds the whole corpus shard by shard, so that a killed builder resumes at its last shard."""

import logging
import threading
import time
from collections.abc import Callable

import numpy as np
from etils import epath
from jaxtyping import Float32, Int64
from ml_collections import ConfigDict

from realm_jax.errors import Stopped
from realm_jax.index_builder.shards import Shards, open_shards
from realm_jax.index_builder.worker import ONLY_WORKER, Worker

Embed = Callable[[np.ndarray], Float32[np.ndarray, "S E"]]
Progress = Callable[[int], None]
REPORT_SECONDS = 30.0  # between two heartbeats, and two warnings, while no shard arrives

log = logging.getLogger(__name__)


def embed_corpus(
    config: ConfigDict,
    ids: Int64[np.ndarray, "N"],
    embed: Embed,
    folder: epath.Path,
    corpus_hash: str,
    stop: threading.Event,
    progress: Progress,
    worker: Worker = ONLY_WORKER,
) -> Float32[np.ndarray, "N E"]:
    """Embeds the shards of worker 0, and waits for those of the other workers.

    Finished shards in `folder` are reused.

    Args:
      config: of the snapshot.
      ids: passage id of each index row.
      embed: passage ids to vectors, with the embedder of the snapshot.
      folder: holds the finished shards; see `shards`.
      corpus_hash: of the corpus.
      stop: checked between shards.
      progress: called after each shard that is embedded or has arrived, with the number of
        passages that all workers have done. Shards of others are counted every `REPORT_SECONDS`.
      worker: worker 0 of n.

    Returns:
      Vectors [N, E], memory-mapped.

    Raises:
      Stopped: when `stop` is set.
    """
    size, shard = len(ids), config.builder.shard
    dims, shared = config.model.embedding, worker.count > 1
    with open_shards(folder, size, dims, corpus_hash, shared=shared) as shards:
        stored, listed = shards.stored(), time.monotonic()
        own = worker.starts(size, shard)
        others = {
            start: min(start + shard, size)
            for number in range(1, worker.count)
            for start in Worker(number, worker.count).starts(size, shard)
        }
        done = sum(min(shard, size - start) for start in own if start in stored)
        arrived = sum(end - start for start, end in others.items() if start in stored)
        for start in own:
            if stop.is_set():
                raise Stopped("embed")
            some = ids[start : start + shard]
            if start in stored and shards.load(start, start + len(some)):
                continue
            shards.save(start, embed(some))
            done += 0 if start in stored else len(some)
            if others and time.monotonic() > listed + REPORT_SECONDS:
                found, listed = shards.stored(), time.monotonic()
                arrived = sum(end - start for start, end in others.items() if start in found)
            progress(done + arrived)
        if others:
            _Gathering(shards, others, worker.count, shard, done).run(
                stop, config.builder.poll_seconds, progress
            )
        return shards.vectors


class _Gathering:
    """Waits for the shards of the other workers; one listing for each poll.

    Args:
      shards: of the snapshot.
      missing: first row of each shard to wait for -> its last one + 1.
      workers: n.
      shard: passages of a shard.
      done: number of passages that are embedded.
    """

    def __init__(
        self, shards: Shards, missing: dict[int, int], workers: int, shard: int, done: int
    ):
        self._shards, self._missing, self._done = shards, missing, done
        self._workers, self._shard = workers, shard
        self._arrived = self._reported = time.monotonic()

    def run(self, stop: threading.Event, poll_seconds: float, progress: Progress) -> None:
        """Returns when all shards are loaded; raises Stopped when `stop` is set."""
        self._load_stored(stop)
        if self._missing:
            log.info("%s", self._waits())
        while self._missing:
            now = time.monotonic()
            if now > self._reported + REPORT_SECONDS:
                self._reported = now
                progress(self._done)
                self._warn(now - self._arrived)
            if stop.wait(poll_seconds):
                raise Stopped("embed")
            if self._load_stored(stop):
                self._arrived = time.monotonic()
                progress(self._done)

    def _load_stored(self, stop: threading.Event) -> int:
        """Loads the shards that have arrived; returns their number."""
        found = sorted(self._shards.stored() & self._missing.keys())
        for start in found:
            if stop.is_set():
                raise Stopped("embed")
            end = self._missing[start]
            if self._shards.load(start, end):
                del self._missing[start]
                self._done += end - start
            else:
                log.warning("the shard of row %d is damaged; its worker embeds it again", start)
                self._shards.delete(start)
        return len(found)

    def _waits(self) -> str:
        numbers = sorted({start // self._shard % self._workers for start in self._missing})
        names = ", ".join(f"{number}/{self._workers}" for number in numbers)
        return f"waiting for {len(self._missing)} shards of workers {names}"

    def _warn(self, seconds: float) -> None:
        log.warning(
            "%s: none has arrived for %.0f s; start these workers again if they have ended "
            "(realm index --worker=i/n)",
            self._waits(),
            seconds,
        )
