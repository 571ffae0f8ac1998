"""Reads the metrics of each step one step late, averages them and passes them to the writers."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from realm_jax.monitoring.writers import Writers
from realm_jax.trainer.throughput import Throughput

_TOKENS = "real_pieces"  # metric of every loss: word pieces per query, padding excluded


class StepMetrics:
    """Metrics of a stage, read one step late so that the devices never wait for the host.

    Args:
      steps: number of steps of the stage.
      every: steps between two records.
      queries: queries per step.
      writers: write the records.
      throughput: measures the time of the steps.
      step_fields: from a step to fields that the host adds to its record.
    """

    def __init__(
        self,
        steps: int,
        every: int,
        queries: int,
        writers: Writers,
        throughput: Throughput,
        step_fields: Callable[[int], dict[str, Any]] = lambda step: {},
    ):
        self._steps, self._every, self._queries = steps, every, queries
        self._writers, self._throughput, self._step_fields = writers, throughput, step_fields
        self._pending: tuple[int, dict[str, Any]] | None = None
        self._unwritten: list[dict[str, Any]] = []
        self._eta_start: tuple[int, float] | None = None  # step and time after the first step

    def count_flops(self, loss: Any, *arguments: Any) -> None:
        """See `Throughput.count_flops`."""
        self._throughput.count_flops(loss, *arguments)

    def add(self, step: int, metrics: dict[str, Any]) -> None:
        """Stores the metrics of the step just dispatched and reads those of the step before."""
        self._read()
        if self._eta_start is None and self._pending is not None:
            self._eta_start = (step, time.monotonic())  # excludes compilation in the first step
        self._throughput.start()
        self._pending = (step, metrics)

    def write(self, step: int, **fields: Any) -> None:
        """Writes a record at once, such as an evaluation; writes none if there are no fields."""
        if fields:
            self._writers.write(step, fields)

    def flush(self) -> None:
        """Reads the metrics of all dispatched steps, so they are written before a checkpoint.

        The time until the next step does not count as training time.
        """
        self._read()
        self._pending = None
        self._throughput.stop()

    def close(self) -> None:
        """Closes the writers; must be called however the stage ends, to restore the terminal."""
        self._writers.close()

    def _read(self) -> None:
        if self._pending is None:
            return
        step, metrics = self._pending
        self._unwritten.append(metrics)
        self._writers.set_step(step + 1)
        if (step + 1) % self._every == 0 or step + 1 == self._steps:
            self._write_means(step + 1)

    def _write_means(self, step: int) -> None:
        fetched = jax.device_get(self._unwritten)
        means = {k: float(np.mean([m[k] for m in fetched])) for k in fetched[0]}
        self._unwritten = []
        tokens = means.pop(_TOKENS) * self._queries * len(fetched)
        rates = self._throughput.rates(len(fetched), tokens)
        self.write(step, **means, **rates, **self._step_fields(step - 1), **self._eta(step))

    def _eta(self, step: int) -> dict[str, float]:
        if self._eta_start is None or not self._eta_start[0] < step < self._steps:
            return {}
        first, start_time = self._eta_start
        seconds_per_step = (time.monotonic() - start_time) / (step - first)
        return {"eta_s": seconds_per_step * (self._steps - step)}
