"""What a person sees of a stage: lines, a bar below them on a terminal, JSON lines on disk."""

import logging
import math
import sys
import time
from typing import Any

import jax
import numpy as np
from etils import epath
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from realm_jax.errors import RealmError
from realm_jax.exchange.logs import Log
from realm_jax.parallel import hosts

log = logging.getLogger(__name__)


class Report:
    """Metrics of a stage. They are read one step late, so the devices never wait for the host."""

    def __init__(self, stage: str, steps: int, every: int, path: epath.Path):
        self._stage, self._steps, self._every = stage, steps, every
        self._pending: tuple[int, dict[str, Any]] | None = None
        self._since: list[dict[str, Any]] = []
        self._last_finite: int | None = None  # up to that step all was finite
        self._clock: tuple[int, float] | None = None  # step and time after the first step
        self._bar = _Bar(stage, steps) if sys.stderr.isatty() and hosts.leads() else None
        self._log = Log(path) if hosts.leads() else None

    def step(self, step: int, metrics: dict[str, Any]) -> None:
        """Takes the metrics of a step just dispatched, and reads those of the one before."""
        self._read()
        if self._last_finite is None:
            self._last_finite = step
        if self._clock is None and self._pending is not None:
            self._clock = (step, time.monotonic())  # the first step compiles: it does not count
        self._pending = (step, metrics)

    def event(self, step: int, **fields: Any) -> None:
        """Writes a record at once: an evaluation, a swap, the end."""
        record = {"stage": self._stage, "step": step, "time": time.time(), **fields}
        if self._log is not None:
            self._log.append(record)
            self._say(step, fields)

    def settle(self) -> None:
        """Reads all that was dispatched, so that what is kept next comes of finite losses.

        Raises:
          RealmError: a loss is not finite.
        """
        if self._pending is None:
            return
        step = self._pending[0] + 1
        self._read()
        self._pending = None
        for metrics in jax.device_get(self._since):
            self._check(step, metrics)

    def finish(self) -> None:
        """Reads the last metrics."""
        self._read()
        self._pending = None

    def close(self) -> None:
        """Ends the bar, which would keep the terminal's cursor; needed however the stage ends."""
        if self._bar is not None:
            self._bar.close()

    def _read(self) -> None:
        if self._pending is None:
            return
        step, metrics = self._pending
        self._since.append(metrics)
        if self._bar is not None:
            self._bar.advance(step + 1)
        if (step + 1) % self._every == 0 or step + 1 == self._steps:
            self._write(step + 1)

    def _write(self, step: int) -> None:
        fetched = jax.device_get(self._since)
        means = {k: float(np.mean([m[k] for m in fetched])) for k in fetched[0]}
        self._since = []
        self._check(step, means)
        self._last_finite = step
        self.event(step, **means)

    def _check(self, step: int, metrics: dict[str, Any]) -> None:
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(metrics[name]):
                raise RealmError(
                    f"the {name} is not a finite number any more",
                    where=f"stage {self._stage}, steps {self._last_finite} to {step}",
                    expected="a finite number",
                    found=float(metrics[name]),
                    fix=f"lower config.stages.{self._stage}.learning_rate; the newest checkpoint "
                    "is from before",
                )

    def _say(self, step: int, fields: dict[str, Any]) -> None:
        by_weight = sorted(fields.items(), key=lambda field: "loss" not in field[0])
        figures = "  ".join(f"{k} {_short(v)}" for k, v in by_weight)
        log.info("%s %d/%d%s: %s", self._stage, step, self._steps, self._left(step), figures)

    def _left(self, step: int) -> str:
        if self._clock is None or not self._clock[0] < step < self._steps:
            return ""
        first, began = self._clock
        seconds = (time.monotonic() - began) / (step - first) * (self._steps - step)
        return f" ({seconds:.0f} s left)"


class _Bar:
    def __init__(self, stage: str, steps: int):
        self._progress = Progress(
            TextColumn(f"{stage:>7}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(stage, total=steps)
        self._progress.start()

    def advance(self, step: int) -> None:
        self._progress.update(self._task, completed=step)

    def close(self) -> None:
        self._progress.stop()


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
