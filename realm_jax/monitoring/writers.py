"""Where the figures of a job go: one small protocol, a writer for each place."""

import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from etils import epath
from ml_collections import ConfigDict

from realm_jax.monitoring.tensorboard import TensorBoard
from realm_jax.monitoring.weights_and_biases import WeightsAndBiases, import_wandb
from realm_jax.storage.layout import RunDir
from realm_jax.storage.logs import Log

Record = dict[str, Any]  # `stage`, `step`, `time` in seconds, then figures by name


@runtime_checkable
class Writer(Protocol):
    """One place that figures go to."""

    def write(self, record: Record) -> None:
        """Takes figures as they come."""

    def at(self, step: int) -> None:
        """So many steps are done; told far more often than there are figures."""

    def close(self) -> None:
        """Nothing more comes of this stage."""


class JsonLines:
    """One JSON object a line, in `logs/STAGE.jsonl`; what status and report read."""

    def __init__(self, path: epath.Path):
        self._log = Log(path)

    def write(self, record: Record) -> None:
        """Appends a line."""
        self._log.append(record)

    def at(self, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing: the file is open only while a line is written."""


class Writers:
    """Several writers as one.

    Args:
      stage: what `write` calls the stage in records.
      writers: told in this order.
      clock: seconds since 1970.
    """

    def __init__(self, stage: str, writers: list[Writer], clock: Callable[[], float] = time.time):
        self._stage, self._writers, self._clock = stage, writers, clock

    def write(self, step: int, figures: dict[str, Any]) -> None:
        """Hands the figures of a step to all writers, as one record."""
        record = {"stage": self._stage, "step": step, "time": self._clock(), **figures}
        for writer in self._writers:
            writer.write(record)

    def at(self, step: int) -> None:
        """So many steps are done."""
        for writer in self._writers:
            writer.at(step)

    def close(self) -> None:
        """Closes all writers, in reverse order."""
        for writer in reversed(self._writers):
            writer.close()


# name in config.report.writers -> writer of (run, stage)
OTHERS: dict[str, Callable[[RunDir, str], Writer]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def check_writers(config: ConfigDict) -> None:
    """Whether `kept_writers` could make those of the config.

    Raises:
      ConfigError: a package that one of them needs is not installed.
    """
    if "wandb" in config.report.writers.split():
        import_wandb()


def kept_writers(run: RunDir, config: ConfigDict, stage: str) -> list[Writer]:
    """The writers of a stage that keep what they are given: JSON lines, and those of the config.

    Raises:
      ConfigError: a package that one of them needs is not installed.
    """
    lines: list[Writer] = [JsonLines(run.logs / f"{stage}.jsonl")]
    return lines + [OTHERS[name](run, stage) for name in config.report.writers.split()]
