"""The figures of a stage on their way from the devices to the writers, one step late."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from realm_jax.monitoring.writers import Writers
from realm_jax.trainer.throughput import Speed

_PIECES = "real_pieces"  # a metric of every loss: word pieces read for a query, without padding


class Report:
    """Metrics of a stage. They are read one step late, so the devices never wait for the host.

    Args:
      stage: its name.
      steps: its last step.
      every: steps between records.
      queries: of a step.
      writers: of the records.
      speed: counts the time of the steps.
      beside: what the host knows of a step, for its record.
    """

    def __init__(
        self,
        stage: str,
        steps: int,
        every: int,
        queries: int,
        writers: Writers,
        speed: Speed,
        beside: Callable[[int], dict[str, Any]] = lambda step: {},
    ):
        self._stage, self._steps, self._every, self._queries = stage, steps, every, queries
        self._writers, self._speed, self._beside = writers, speed, beside
        self._pending: tuple[int, dict[str, Any]] | None = None
        self._since: list[dict[str, Any]] = []
        self._clock: tuple[int, float] | None = None  # step and time after the first step

    def count_products(self, loss: Any, *arguments: Any) -> None:
        """See `Speed.one_step`."""
        self._speed.one_step(loss, *arguments)

    def step(self, step: int, metrics: dict[str, Any]) -> None:
        """Takes the metrics of a step just dispatched, and reads those of the one before."""
        self._read()
        if self._clock is None and self._pending is not None:
            self._clock = (step, time.monotonic())  # the first step compiles: it does not count
        self._speed.start()
        self._pending = (step, metrics)

    def event(self, step: int, **fields: Any) -> None:
        """Writes a record at once: an evaluation, the end. One without figures is none."""
        if fields:
            self._writers.write(step, fields)

    def settle(self) -> None:
        """Reads the metrics of all that was dispatched: a line is written before what it is of.

        The time until the next step is not counted as training.
        """
        self._read()
        self._pending = None
        self._speed.stop()

    def close(self) -> None:
        """Ends the view, which would keep the terminal's cursor; needed however the stage ends."""
        self._writers.close()

    def _read(self) -> None:
        if self._pending is None:
            return
        step, metrics = self._pending
        self._since.append(metrics)
        self._writers.at(step + 1)
        if (step + 1) % self._every == 0 or step + 1 == self._steps:
            self._write(step + 1)

    def _write(self, step: int) -> None:
        fetched = jax.device_get(self._since)
        means = {k: float(np.mean([m[k] for m in fetched])) for k in fetched[0]}
        self._since = []
        pieces = means.pop(_PIECES) * self._queries * len(fetched)
        speeds = self._speed.figures(len(fetched), pieces)
        self.event(step, **means, **speeds, **self._beside(step - 1), **self._left(step))

    def _left(self, step: int) -> dict[str, float]:
        if self._clock is None or not self._clock[0] < step < self._steps:
            return {}
        first, began = self._clock
        return {"eta_s": (time.monotonic() - began) / (step - first) * (self._steps - step)}
