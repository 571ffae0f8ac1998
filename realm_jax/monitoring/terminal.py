"""Shows the progress of a stage: a live view on a terminal, log lines elsewhere."""

import contextlib
import logging
import sys
import time
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console
from rich.live import Live

from realm_jax.monitoring.format import line
from realm_jax.monitoring.live_view import View
from realm_jax.monitoring.run_state import RunState, read_last_refresh, stages_of
from realm_jax.monitoring.status import read_builder
from realm_jax.storage.layout import RunDir

_BUILDER_EVERY = 2.0  # seconds between reads of the builder's heartbeat

log = logging.getLogger(__name__)


def terminal_writer(run: RunDir, config: ConfigDict, stage: str, first: int) -> "Lines | LiveView":
    """Makes a live view if stderr is a terminal; else a writer of log lines.

    Args:
      run: the run folder.
      config: of the run.
      stage: its name.
      first: number of steps that are done already.
    """
    steps = config.stages[stage].steps
    if not sys.stderr.isatty():
        return Lines(steps)
    state = RunState(run.root.name, stages_of(config.to_dict()), stage=stage, step=first)
    return LiveView(state, run, Console(stderr=True))


class Lines:
    """Logs one line per record.

    Args:
      steps: number of steps of the stage; None if it has no end.
    """

    def __init__(self, steps: int | None):
        self._steps = steps

    def write(self, record: dict[str, Any]) -> None:
        """Logs a line."""
        log.info("%s", line(record, self._steps))

    def set_step(self, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class LiveView:
    """Draws the state of a run twice a second, below all other output."""

    def __init__(self, state: RunState, run: RunDir, console: Console):
        self._state, self._run, self._builder_read = state, run, -_BUILDER_EVERY
        self._live = Live(get_renderable=self._view, console=console, refresh_per_second=2)
        self._live.start()

    def write(self, record: dict[str, Any]) -> None:
        """Adds a record to the state."""
        self._state.add(record)

    def set_step(self, step: int) -> None:
        """Moves the progress bar."""
        self._state.step = step

    def close(self) -> None:
        """Stops drawing and restores the cursor; the last view stays on the screen."""
        self._live.stop()

    def _view(self) -> View:
        state = self._state
        state.now = time.time()
        if time.monotonic() - self._builder_read > _BUILDER_EVERY:
            self._builder_read = time.monotonic()
            # If the storage cannot be reached, the view keeps the last known values.
            with contextlib.suppress(OSError):
                state.builder = read_builder(self._run, state.now)
                state.refresh = read_last_refresh(self._run)
        return View(state)
