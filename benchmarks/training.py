"""REALM pre-training on pieces that mean nothing, for benchmarks of what goes on beside it.

All of it is the product's own: the stage, its step, the feed that makes batches ahead, the index in
use that follows published indexes. Only text and passages are drawn (`step.py`).
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from step import PASSAGES, DrawnStore, DrawnText, sized

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import publish_index
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.prefetch import Prefetcher
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

CORPUS = "drawn"


class Training:
    """A trainer on one device, and a run folder that indexes are published into.

    Args:
      folder: of the run.
      size: of the model, one of `step.SIZES`.
      rows: of each index; passages are drawn from fewer.
      follows: the class of the index in use.
      texts: the class of the masked sentences.
    """

    def __init__(
        self,
        folder: Path,
        size: str,
        rows: int,
        follows: type[IndexManager] = IndexManager,
        texts: type[DrawnText] = DrawnText,
    ):
        config = config_lib.ConfigDict(sized(size).to_dict())
        config.refresh.mode = "async"
        config.model.compute = "bfloat16"
        config.builder.poll_seconds = 0.05
        self.config = config_lib.check(config)
        self.run, self._rows = RunDir(folder), rows
        self._store = DrawnStore()
        self.mesh = make_mesh(config.mesh, jax.devices()[:1])
        text = texts(config)
        self.index = follows(self.run, self.config, CORPUS, [], set)
        self.stage = RealmStage(self.config, self._store, text, text, self.index)
        optimizer = make_optimizer(config.optimizer, self.stage.settings)
        self.state = make_state(self.stage.modules, optimizer, self.mesh, config.seed, {})
        places = jax.tree.map(lambda leaf: leaf.sharding, self.state)
        self._step = make_step(self.stage, optimizer, self.mesh, places, config.seed)

    def publish(self, step: int) -> None:
        """An index of `rows` clustered vectors, as the index builder publishes one."""
        rng = np.random.default_rng(step)
        dims = self.config.model.embedding
        centres = rng.standard_normal((round(self._rows**0.5), dims), np.float32)
        vectors = centres[rng.integers(0, len(centres), self._rows)]
        vectors += 0.3 * rng.standard_normal(vectors.shape, np.float32)
        search = self.config.search
        searcher = build_searcher(search.kind, vectors, search)
        rows = np.arange(self._rows) % PASSAGES
        query = jax.device_get(self.state.parameters["embedder"])
        fields = {"corpus_hash": CORPUS}
        publish_index(self.run, step, searcher, rows, vectors, query, fields, "{}")

    def steps(
        self, first: int, last: int, make: Callable[[int], Any] | None = None
    ) -> Iterator[tuple[int, float]]:
        """Trains, as the loop does; (step, seconds since the step before) of each but the first.

        Args:
          first: step.
          last: step, itself left out.
          make: the batch of a step, on the host; None is that of the stage, with its retrieval.
        """
        sharding = batch_sharding(self.mesh)
        batch = make or self.stage.batch
        feed = Prefetcher(lambda step: jax.device_put(batch(step), sharding), first, last)
        before, never, then = None, threading.Event(), 0.0
        try:
            for step in range(first, last):
                self.state, metrics = self._step(
                    self.state, feed.take(step, never, self.state.parameters)
                )
                if before is not None:
                    jax.block_until_ready(before)  # as the loop reads the metrics of step - 1
                now = time.perf_counter()
                if step > first:
                    yield step, now - then
                before, then = metrics, now
        finally:
            feed.close()
