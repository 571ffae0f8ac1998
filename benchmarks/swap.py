"""The effect of an index swap on the duration of training steps.

Command:  python benchmarks/swap.py [--quick] [--size=tiny] [--rows=1000000] [--swaps=40] [--json]
Data:     none: tokens and vectors are random
Output:   `p99_ratio`: 99th percentile of step seconds in blocks with a swap, over that in blocks
          without; `p99_ratio_interval`: its 95 % interval from resampled blocks; `exchange_ms`: the
          longest call of `IndexManager.for_step` that swapped, without the write to the swap log;
          `log_ms`: the longest write to the swap log (both run in the prefetch thread);
          `peak_indexes`: the largest number of indexes in memory at once
Time:     --quick (100,000 rows, six swaps) under five minutes on two cores; full twenty minutes

JAX gets all cores but one, on which the index manager verifies and loads. Blocks with and without a
swap take turns and have the same batches. An index is published at the start of a block with a
swap. All index files are written beforehand, because in production the builder is another machine.
"""

import os
import threading
import time
import weakref
from pathlib import Path

import numpy as np
from random_text import RandomText
from training import Training, run_benchmark

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.masked_text import MaskedText
from realm_jax.storage import commit
from realm_jax.storage.layout import step_name
from realm_jax.trainer.index_manager import IndexManager

BLOCK = 40  # steps; enough for one load, one swap and the release of the old index
RESAMPLES = 2000  # for the interval
TURNS = (True, False, False, True)  # blocks with a swap; neither kind is always the later one


class RepeatedText(RandomText):
    """The same batches in every block."""

    def batch(self, step: int, size: int, batch_rows: np.ndarray | None = None) -> MaskedText:
        """See `RandomText.batch`."""
        return super().batch(step % BLOCK, size, batch_rows)


class TimedManager(IndexManager):
    """An index manager that times its swaps and counts the indexes in memory."""

    def __init__(self, *arguments: object):
        super().__init__(*arguments)
        self.swap_seconds: list[float] = []  # of `for_step`, without the write to the log
        self.log_seconds: list[float] = []
        self.alive: weakref.WeakSet = weakref.WeakSet()
        self.peak = 0

    def for_step(self, step: int) -> object:
        """As `IndexManager.for_step`, timed."""
        before, began = self.current, time.perf_counter()
        found = super().for_step(step)
        if before is not None and found is not before:
            self.swap_seconds.append(time.perf_counter() - began - self.log_seconds[-1])
        return found

    def _log_swap(self, step: int, index: PublishedIndex) -> None:
        began = time.perf_counter()
        super()._log_swap(step, index)
        self.log_seconds.append(time.perf_counter() - began)

    def _opened(self, index_step: int) -> object:
        found = super()._opened(index_step)
        self.alive.add(found.searcher)
        self.peak = max(self.peak, len(self.alive))
        return found


def measure(folder: Path, size: str, rows: int, swaps: int) -> dict[str, object]:
    """Times the steps of blocks with and without a swap."""
    training = Training(folder, size, rows, TimedManager, RepeatedText)
    prepare_indexes(training, swaps)
    index, parent = training.index, training.run.published_index
    seconds: dict[bool, list[float]] = {True: [], False: []}
    load_seconds: list[float] = []
    newest, published_at = 0, 0.0
    with_swap = False  # the first block only compiles; its steps are not counted
    for step, spent in training.steps(0, (2 * swaps + 1) * BLOCK):
        if step > BLOCK:
            seconds[with_swap].append(spent)
        if newest > len(load_seconds) and index.current.step == newest:
            load_seconds.append(time.monotonic() - published_at)
        if step % BLOCK:
            continue
        if newest > len(load_seconds):
            raise SystemExit(f"no swap within {BLOCK} steps: too few for this machine and size")
        with_swap = TURNS[(step // BLOCK - 1) % len(TURNS)]
        if with_swap:
            newest, published_at = newest + 1, time.monotonic()
            # In a thread: in production another process waits for this write.
            threading.Thread(target=commit.write_pointer, args=(parent, newest)).start()
    index.close()
    quantiles = {kind: np.percentile(values, [50, 99, 100]) for kind, values in seconds.items()}
    low, high = ratio_interval(seconds[True], seconds[False])
    return {
        "rows": rows,
        "size": size,
        "swaps": len(index.swap_seconds),
        "p99_ratio": round(quantiles[True][1] / quantiles[False][1], 3),
        "p99_ratio_interval": [round(low, 3), round(high, 3)],
        "exchange_ms": round(1000 * max(index.swap_seconds), 3),
        "log_ms": round(1000 * max(index.log_seconds), 3),
        "peak_indexes": index.peak,
        "steps": {"with a swap": len(seconds[True]), "without": len(seconds[False])},
        "milliseconds_with_a_swap": as_milliseconds(quantiles[True]),
        "milliseconds_without": as_milliseconds(quantiles[False]),
        "seconds_from_publication_to_swap": round(float(np.median(load_seconds)), 2),
    }


def ratio_interval(with_swap: list[float], without: list[float]) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval of the ratio of two 99th percentiles, over blocks."""
    rng = np.random.default_rng(0)
    # the last block lacks one step
    complete = [values[: len(values) // BLOCK * BLOCK] for values in (with_swap, without)]
    blocks = [np.reshape(values, (-1, BLOCK)) for values in complete]
    resampled = [
        [np.percentile(kind[rng.integers(len(kind), size=len(kind))], 99) for kind in blocks]
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile([a / b for a, b in resampled], [2.5, 97.5])
    return float(low), float(high)


def as_milliseconds(quantiles: np.ndarray) -> dict[str, float]:
    """Names and rounds the median, the 99th percentile and the maximum."""
    named = zip(("median", "p99", "largest"), quantiles, strict=True)
    return {name: round(1000 * float(value), 2) for name, value in named}


def prepare_indexes(training: Training, swaps: int) -> None:
    """Publishes copies of one index (hard links) as later steps; the pointer stays at step 0."""
    training.publish(0)
    parent = training.run.published_index
    source = Path(parent / step_name(0))
    files = {one.relative_to(source) for one in source.rglob("*") if one.is_file()}
    manifest = commit.read_manifest(parent / step_name(0))
    files -= {Path(commit.MANIFEST)}

    def link(folder: os.PathLike) -> None:
        for name in files:
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).hardlink_to(source / name)

    kept = {key: manifest[key] for key in ("kind", "corpus_hash", "dims", "searcher")}
    for step in range(1, swaps + 1):
        commit.publish(parent, step, link, kept)
    commit.write_pointer(parent, 0)


if __name__ == "__main__":
    run_benchmark(__doc__, measure, size="tiny", repeat=("swaps", 40, 6))
