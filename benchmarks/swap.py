"""What a swap of the index costs the steps around it.

Command:  python benchmarks/swap.py [--quick] [--size=tiny] [--rows=1000000] [--swaps=40] [--json]
Data:     none: pieces and vectors are drawn
Output:   `p99_ratio`: 99th percentile of the seconds of a step in blocks with a swap (an index is
          published as they begin) over that in blocks without, both of the same batches, in turns,
          and its 95 % interval `p99_ratio_interval`, by drawing blocks of both kinds anew;
          `exchange_ms`, the longest that a step's call for its index took when it swapped, and
          `log_ms` the longest that its line in the log of swaps took besides (both in the thread
          that makes batches ahead of the steps); `peak_indexes`, the most in memory at once
Time:     --quick (100,000 rows, six swaps) under five minutes on two cores; full twenty minutes

jax gets all cores but one; the index in use verifies and loads on that one. The indexes lie in the
run folder beforehand (on a pod the builder is another machine) and are published one by one.
Batches differ in shape and so in time: each is met as often with a swap as without.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path

import numpy as np
from step import DrawnText
from training import Training

from realm_jax import runtime
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.masked_text import MaskedText
from realm_jax.storage import commit
from realm_jax.storage.layout import step_name
from realm_jax.trainer.index_manager import IndexManager

BLOCK = 40  # steps, as many batches; long enough for a load, a swap and what is freed after it
DRAWS = 2000  # of blocks, for the interval
TURNS = (True, False, False, True)  # of blocks with a swap, so that neither kind is always later


class Repeated(DrawnText):
    """The same batches in every block."""

    def batch(self, step: int, size: int, batch_rows: np.ndarray | None = None) -> MaskedText:
        """See `DrawnText.batch`."""
        return super().batch(step % BLOCK, size, batch_rows)


class Watched(IndexManager):
    """The index in use, its exchanges timed and its indexes counted."""

    def __init__(self, *arguments: object):
        super().__init__(*arguments)
        self.exchanges: list[float] = []  # seconds of `for_step` where it swapped, but for
        self.logged: list[float] = []  # those of the log
        self.alive: weakref.WeakSet = weakref.WeakSet()
        self.most = 0

    def for_step(self, step: int) -> object:
        """Timed."""
        before, began = self.current, time.perf_counter()
        found = super().for_step(step)
        if before is not None and found is not before:
            self.exchanges.append(time.perf_counter() - began - self.logged[-1])
        return found

    def _log_swap(self, step: int, index: PublishedIndex) -> None:
        began = time.perf_counter()
        super()._log_swap(step, index)
        self.logged.append(time.perf_counter() - began)

    def _opened(self, index_step: int) -> object:
        found = super()._opened(index_step)
        self.alive.add(found.searcher)
        self.most = max(self.most, len(self.alive))
        return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--swaps", type=int, default=40)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    arguments = parser.parse_args()
    rows, swaps = (100_000, 6) if arguments.quick else (arguments.rows, arguments.swaps)
    runtime.start(threads=max(1, (os.cpu_count() or 1) - 1))
    with tempfile.TemporaryDirectory() as folder:
        report = measured(Path(folder), arguments.size, rows, swaps)
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def measured(folder: Path, size: str, rows: int, swaps: int) -> dict[str, object]:
    """Steps of blocks with a swap, and without."""
    training = Training(folder, size, rows, Watched, Repeated)
    lay_out(training, swaps)
    index, parent = training.index, training.run.published_index
    seconds: dict[bool, list[float]] = {True: [], False: []}
    loads: list[float] = []
    newest, shown_at = 0, 0.0
    inside = False  # the first block has none: it compiles, and does not count
    for step, spent in training.steps(0, (2 * swaps + 1) * BLOCK):
        if step > BLOCK:
            seconds[inside].append(spent)
        if newest > len(loads) and index.current.step == newest:
            loads.append(time.monotonic() - shown_at)
        if step % BLOCK:
            continue
        if newest > len(loads):
            raise SystemExit(f"no swap within {BLOCK} steps: too few for this machine and size")
        inside = TURNS[(step // BLOCK - 1) % len(TURNS)]
        if inside:
            newest, shown_at = newest + 1, time.monotonic()
            # By another thread, as by another process: its wait for the disk is not the step's.
            threading.Thread(target=commit.write_pointer, args=(parent, newest)).start()
    index.close()
    quantiles = {inside: np.percentile(own, [50, 99, 100]) for inside, own in seconds.items()}
    low, high = ratio_interval(seconds[True], seconds[False])
    return {
        "rows": rows,
        "size": size,
        "swaps": len(index.exchanges),
        "p99_ratio": round(quantiles[True][1] / quantiles[False][1], 3),
        "p99_ratio_interval": [round(low, 3), round(high, 3)],
        "exchange_ms": round(1000 * max(index.exchanges), 3),
        "log_ms": round(1000 * max(index.logged), 3),
        "peak_indexes": index.most,
        "steps": {"with a swap": len(seconds[True]), "without": len(seconds[False])},
        "milliseconds_with_a_swap": as_milliseconds(quantiles[True]),
        "milliseconds_without": as_milliseconds(quantiles[False]),
        "seconds_from_publication_to_swap": round(float(np.median(loads)), 2),
    }


def ratio_interval(inside: list[float], outside: list[float]) -> tuple[float, float]:
    """95 % interval of the ratio of two 99th percentiles; steps of a block are drawn together."""
    rng = np.random.default_rng(0)
    full = [own[: len(own) // BLOCK * BLOCK] for own in (inside, outside)]  # the last lacks a step
    whole = [np.reshape(own, (-1, BLOCK)) for own in full]
    drawn = [
        [np.percentile(own[rng.integers(len(own), size=len(own))], 99) for own in whole]
        for _ in range(DRAWS)
    ]
    low, high = np.percentile([a / b for a, b in drawn], [2.5, 97.5])
    return float(low), float(high)


def as_milliseconds(quantiles: np.ndarray) -> dict[str, float]:
    """Median, 99th percentile and largest."""
    named = zip(("median", "p99", "largest"), quantiles, strict=True)
    return {name: round(1000 * float(value), 2) for name, value in named}


def lay_out(training: Training, swaps: int) -> None:
    """Publishes one index under many steps, by hard links, and points to the first."""
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
    main()
