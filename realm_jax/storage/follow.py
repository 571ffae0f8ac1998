"""Following another job: its newest step, again and again, until it says that the run has ended."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from realm_jax.storage import commit, files
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
    """Yields newly published steps, only ever the newest; those in between are skipped.

    Ends when `stop` is set, or when the run has ended and its last step was yielded. A step of a
    run that has ended is yielded once; whether it is still worth the work is the caller's choice.

    Args:
      parent: for example `RunDir.snapshots`.
      after: steps up to this one are old; None yields whatever is newest now.
      poll_seconds: between two looks.
      stop: ends the wait at once when set.
      ended: asked on every look, for example `lambda: ended(run)`.
      wait: sleeps that many seconds; None is `stop.wait`.
    """
    wait = stop.wait if wait is None else wait
    while not stop.is_set():
        over = ended()  # asked before looking, so a step published just before the end is not lost
        newest = commit.latest(parent)
        if newest is not None and (after is None or newest > after):
            after = newest
            yield newest
        elif over:
            return
        else:
            wait(poll_seconds)


def mark_end(run: RunDir, **fields: Any) -> None:
    """Says that nothing more will be published; `fields` may say why."""
    failpoint("end.begun")
    files.write_sealed(run.end_marker, {"time": time.time(), **fields})
    failpoint("end.marked")


def clear_end(run: RunDir) -> None:
    """Takes the end back: the trainer starts the run again with more steps to do."""
    files.delete_file(run.end_marker)


def ended(run: RunDir) -> bool:
    """Whether the end marker is there, torn or not."""
    return run.end_marker.exists()
