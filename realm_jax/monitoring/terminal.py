"""What a person sees of a stage at work: a live view on a terminal, lines in a log elsewhere."""

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
from realm_jax.monitoring.run_state import Picture, newest_refresh, stages_of
from realm_jax.monitoring.status import read_builder
from realm_jax.storage.layout import RunDir

_BUILDER_EVERY = 2.0  # seconds between looks at the builder's heartbeat

log = logging.getLogger(__name__)


def person_writer(run: RunDir, config: ConfigDict, stage: str, first: int) -> "Lines | LiveView":
    """The view that fits where stderr goes."""
    steps = config.stages[stage].steps
    if not sys.stderr.isatty():
        return Lines(steps)
    picture = Picture(run.root.name, stages_of(config.to_dict()), stage=stage, step=first)
    return LiveView(picture, run, Console(stderr=True))


class Lines:
    """One line for each record.

    Args:
      steps: of the stage; None if it has no end.
    """

    def __init__(self, steps: int | None):
        self._steps = steps

    def write(self, record: dict[str, Any]) -> None:
        """Logs a line."""
        log.info("%s", line(record, self._steps))

    def at(self, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class LiveView:
    """The picture of a run, drawn anew twice a second below what else is printed."""

    def __init__(self, picture: Picture, run: RunDir, console: Console):
        self._picture, self._run, self._looked = picture, run, -_BUILDER_EVERY
        self._live = Live(get_renderable=self._view, console=console, refresh_per_second=2)
        self._live.start()

    def write(self, record: dict[str, Any]) -> None:
        """Adds figures to the picture."""
        self._picture.take(record)

    def at(self, step: int) -> None:
        """Moves the bar."""
        self._picture.step = step

    def close(self) -> None:
        """Gives the terminal back; the last picture stays."""
        self._live.stop()

    def _view(self) -> View:
        picture = self._picture
        picture.now = time.time()
        if time.monotonic() - self._looked > _BUILDER_EVERY:
            self._looked = time.monotonic()
            # A store out of reach for a while ends no view; what was seen last stays in it.
            with contextlib.suppress(OSError):
                picture.builder = read_builder(self._run, picture.now)
                picture.refresh = newest_refresh(self._run)
        return View(picture)
