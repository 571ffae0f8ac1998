"""How far a long verb has come: a bar on a terminal, a line now and then elsewhere."""

import logging
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

TELL_EVERY = 5.0  # seconds between lines

log = logging.getLogger(__name__)


class Tally:
    """Counts up to a total; used in a `with`, which puts the terminal's cursor back."""

    def __init__(self, what: str, total: int):
        self._what, self._total, self._speed = what, total, 0.0
        self._began = self._told = time.monotonic()
        self._first: int | None = None  # what an earlier run had done does not count for the speed
        self._bar = _bar() if sys.stderr.isatty() else None
        if self._bar is not None:
            self._task = self._bar.add_task(what, total=total, speed="")

    def __enter__(self) -> "Tally":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, count: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if self._first is None:
            self._first = count
        speed = (count - self._first) / max(now - self._began, 1e-9)
        text = f"{speed:,.0f} {self._what}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=count, speed=text)
        elif now - self._told >= TELL_EVERY:
            self._told = now
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
