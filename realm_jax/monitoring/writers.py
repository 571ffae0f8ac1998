"""Metric writers: one protocol, one class per destination."""

import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from etils import epath
from ml_collections import ConfigDict

from realm_jax.monitoring.tensorboard import TensorBoard
from realm_jax.monitoring.weights_and_biases import WeightsAndBiases, import_wandb
from realm_jax.storage.layout import RunDir
from realm_jax.storage.logs import Log

Record = dict[str, Any]  # `stage`, `step`, `time` (seconds since 1970), then metrics by name


@runtime_checkable
class Writer(Protocol):
    """A destination of metrics."""

    def write(self, record: Record) -> None:
        """Writes the metrics of one step."""

    def set_step(self, step: int) -> None:
        """Reports the number of finished steps; called after every step."""

    def close(self) -> None:
        """Ends the stage: flushes and closes files."""


class JsonLines:
    """Appends records to `logs/STAGE.jsonl`, one JSON object a line; read by status and report."""

    def __init__(self, path: epath.Path):
        self._log = Log(path)

    def write(self, record: Record) -> None:
        """Appends a line."""
        self._log.append(record)

    def set_step(self, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing: the file is open only while a line is written."""


class Writers:
    """Sends metrics to several writers.

    Args:
      stage: value of `stage` in the records.
      writers: called in this order.
      clock: returns seconds since 1970.
    """

    def __init__(self, stage: str, writers: list[Writer], clock: Callable[[], float] = time.time):
        self._stage, self._writers, self._clock = stage, writers, clock

    def write(self, step: int, metrics: dict[str, Any]) -> None:
        """Sends the metrics of a step to all writers, as one record."""
        record = {"stage": self._stage, "step": step, "time": self._clock(), **metrics}
        for writer in self._writers:
            writer.write(record)

    def set_step(self, step: int) -> None:
        """Reports the number of finished steps to all writers."""
        for writer in self._writers:
            writer.set_step(step)

    def close(self) -> None:
        """Closes all writers, in reverse order."""
        for writer in reversed(self._writers):
            writer.close()


# name in config.report.writers -> class with arguments (run, stage)
OPTIONAL: dict[str, Callable[[RunDir, str], Writer]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def check_writers(config: ConfigDict) -> None:
    """Checks that the packages of all configured writers are installed.

    Raises:
      ConfigError: a package is missing.
    """
    if "wandb" in config.report.writers.split():
        import_wandb()


def metric_writers(run: RunDir, config: ConfigDict, stage: str) -> list[Writer]:
    """Makes the writers of a stage: JSON lines, and those in `config.report.writers`.

    Raises:
      ConfigError: a package that one of them needs is not installed.
    """
    lines: list[Writer] = [JsonLines(run.logs / f"{stage}.jsonl")]
    return lines + [OPTIONAL[name](run, stage) for name in config.report.writers.split()]
