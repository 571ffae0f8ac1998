"""REALM pre-training on random tokens, for benchmarks of work that runs during training.

Stage, training step, prefetcher and index manager are those of the package. Only text and passages
are random (`random_text.py`).
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from command_line import make_parser, write_report
from random_text import PASSAGES, RandomStore, RandomText, sized_config

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.artifacts.published_index import publish_index
from realm_jax.data.pretraining import PretrainingRows
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.prefetch import Prefetcher
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step


def usual_buckets(config: config_lib.ConfigDict, store: Any, source: Any) -> Any:
    """Returns the row widths to which the trainer packs the sentences of `source`."""
    return PretrainingRows(config, store, config.stages.realm.batch).usual(source)


def packed_batches(
    stage: RealmStage,
    config: config_lib.ConfigDict,
    store: Any,
    source: Any,
    queries: list[tuple[Any, np.ndarray]],
) -> list[Any]:
    """Packs batches as the trainer does.

    Args:
      stage: joins queries and candidates.
      config: config of the stage.
      store: the knowledge corpus.
      source: masked sentences, from which the usual row widths are estimated.
      queries: masked sentences and their hits (passage ids [B, K], best first) of each batch.
    """
    buckets = usual_buckets(config, store, source)
    size = config.stages.realm.batch
    return [stage.with_candidates(text, hits, size, buckets) for text, hits in queries]


class Training:
    """A trainer on one device, with a run folder in which indexes are published.

    Args:
      folder: the run folder.
      size: model size, a key of `random_text.SIZES`.
      rows: rows of each index; they point to a smaller number of passages.
      manager_class: class of the index manager.
      text_class: class of the masked sentences.
    """

    def __init__(
        self,
        folder: Path,
        size: str,
        rows: int,
        manager_class: type[IndexManager] = IndexManager,
        text_class: type[RandomText] = RandomText,
    ):
        config = config_lib.ConfigDict(sized_config(size).to_dict())
        config.refresh.mode = "async"
        config.model.compute = "bfloat16"
        config.builder.poll_seconds = 0.05
        self.config = config_lib.check(config)
        self.run, self._rows = RunDir(folder), rows
        self.store = RandomStore()
        self.mesh = make_mesh(config.mesh, jax.devices()[:1])
        self.text = text_class(config)
        accepts = Knowledge(self.store, self.config).accepts
        self.index = manager_class(self.run, self.config, accepts, [], set)
        self.stage = RealmStage(self.config, self.store, self.text, self.text, self.index)
        optimizer = make_optimizer(config.optimizer, self.stage.settings)
        params = initial_params(config, self.stage.modules, {}, self.mesh)
        self.state = make_state(self.stage.modules, optimizer, self.mesh, params)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.state)
        self._step = make_step(self.stage, optimizer, self.mesh, shardings, config.seed)

    def publish(self, step: int) -> None:
        """Publishes an index of clustered random vectors, as the index builder does."""
        rng = np.random.default_rng(step)
        dims = self.config.model.embedding
        centres = rng.standard_normal((round(self._rows**0.5), dims), np.float32)
        vectors = centres[rng.integers(0, len(centres), self._rows)]
        vectors += 0.3 * rng.standard_normal(vectors.shape, np.float32)
        search = self.config.search
        searcher = build_searcher(search.kind, vectors, search)
        rows = np.arange(self._rows) % PASSAGES
        query_params = jax.device_get(self.state.parameters["embedder"])
        fields = {"corpus_hash": self.store.corpus_hash}
        publish_index(self.run, step, searcher, rows, vectors, query_params, fields, "{}")

    def steps(
        self, first: int, last: int, make: Callable[[int], Any] | None = None
    ) -> Iterator[tuple[int, float]]:
        """Trains from step `first` up to, but not including, step `last`, as the trainer's loop.

        Args:
          first: first step.
          last: step after the last one.
          make: function from a step to its batch on the host; None uses the stage's own batches,
            which include retrieval.

        Yields:
          (step, seconds since the previous step), except for the first step.
        """
        sharding = batch_sharding(self.mesh)
        batch = make or self.stage.batch
        prefetcher = Prefetcher(lambda step: jax.device_put(batch(step), sharding), first, last)
        previous, never, then = None, threading.Event(), 0.0
        try:
            for step in range(first, last):
                self.state, metrics = self._step(
                    self.state, prefetcher.get(step, never, self.state.parameters)
                )
                if previous is not None:
                    jax.block_until_ready(previous)  # the loop reads metrics one step late too
                now = time.perf_counter()
                if step > first:
                    yield step, now - then
                previous, then = metrics, now
        finally:
            prefetcher.close()


def run_benchmark(
    docstring: str,
    measure: Callable[[Path, str, int, int], Any],
    *,
    size: str,
    repeat: tuple[str, int, int],
) -> None:
    """Runs a benchmark on all cores but one, and prints its report.

    Args:
      docstring: docstring of the benchmark.
      measure: function of a folder, a model size, the rows of an index, and the repetitions.
      size: default model size.
      repeat: name of the flag for the repetitions, their default, and their number with --quick.
    """
    flag, default, quick = repeat
    parser = make_parser(docstring, quick=True)
    parser.add_argument("--size", default=size)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(f"--{flag}", type=int, default=default)
    arguments = parser.parse_args()
    count = quick if arguments.quick else getattr(arguments, flag)
    rows = 100_000 if arguments.quick else arguments.rows
    runtime.start(threads=max(1, (os.cpu_count() or 1) - 1))
    with tempfile.TemporaryDirectory() as folder:
        write_report(measure(Path(folder), arguments.size, rows, count), arguments)
