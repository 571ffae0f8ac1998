"""Following another job: yields each newest published step until the run has ended."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from realm_jax.storage import commit, files, sealed
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import RunDir


def follow(
    parent: epath.Path,
    after: int | None,
    *,
    poll_seconds: float,
    stop: threading.Event,
    ended: Callable[[], bool],
    wait: Callable[[float], Any] | None = None,
) -> Iterator[int]:
    """Yields newly published steps, always the newest one; steps in between are skipped.

    Ends when `stop` is set, or when the run has ended and its last step was yielded. If the run
    has already ended, its last step is still yielded once.

    Args:
      parent: for example `RunDir.snapshots`.
      after: only later steps are yielded; None also yields the step that is newest at the start.
      poll_seconds: between two polls.
      stop: ends the wait at once when set.
      ended: called in every poll, for example `lambda: ended(run)`.
      wait: sleeps the given seconds; None is `stop.wait`.
    """
    wait = stop.wait if wait is None else wait
    while not stop.is_set():
        over = ended()  # before `latest`: a step published just before the end must not be missed
        newest = commit.latest(parent)
        if newest is not None and (after is None or newest > after):
            after = newest
            yield newest
        elif over:
            return
        else:
            wait(poll_seconds)


def mark_end(run: RunDir, **fields: Any) -> None:
    """Writes END.json: nothing more will be published. `fields` are recorded in it."""
    failpoint("end.begun")
    sealed.write(run.end_marker, {"time": time.time(), **fields})
    failpoint("end.marked")


def clear_end(run: RunDir) -> None:
    """Deletes END.json, when the trainer continues a finished run with more steps."""
    files.delete_file(run.end_marker)


def ended(run: RunDir) -> bool:
    """Whether END.json exists, damaged or not."""
    return run.end_marker.exists()
