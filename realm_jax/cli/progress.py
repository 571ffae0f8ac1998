"""Progress of long verbs: a bar on a terminal, log lines otherwise."""

import logging
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LOG_EVERY = 5.0  # seconds between log lines

log = logging.getLogger(__name__)


class ProgressBar:
    """Shows a count of a known total. A context manager, so that the terminal is restored."""

    def __init__(self, what: str, total: int):
        self._what, self._total = what, total
        self._began = self._logged = time.monotonic()
        self._first: int | None = None  # done by an earlier run; not counted in the speed
        self._bar = _bar() if sys.stderr.isatty() else None
        if self._bar is not None:
            self._task = self._bar.add_task(what, total=total, speed="")

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, count: int) -> None:
        """Shows that `count` items are done."""
        now = time.monotonic()
        if self._first is None:
            self._first = count
        speed = (count - self._first) / max(now - self._began, 1e-9)
        text = f"{speed:,.0f} {self._what}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=count, speed=text)
        elif now - self._logged >= LOG_EVERY:
            self._logged = now
            log.info("%d of %d %s, %s", count, self._total, self._what, text)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
