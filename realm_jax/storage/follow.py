"""Following another job: yields each newest published step until the run has ended."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from realm_jax.errors import DamageError
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


def end_time(run: RunDir) -> float | None:
    """When END.json was written; None if it does not exist, infinity if it is damaged."""
    content = files.read_bytes(run.end_marker)
    if content is None:
        return None
    try:
        time_of_end = sealed.unseal(content, run.end_marker).get("time")
    except DamageError:
        return math.inf
    return time_of_end if isinstance(time_of_end, float) else math.inf


def end_of(run: RunDir, last_step: int = 0) -> Callable[[], bool]:
    """A function that says whether the run has ended.

    A finished run may be continued: then its trainer deletes END.json, perhaps later than another
    job looks. So an END.json that exists now and is of a step before `last_step` does not count.
    """
    before = files.read_bytes(run.end_marker)
    is_earlier = before is not None and _end_step(before, run) < last_step

    def has_ended() -> bool:
        found = files.read_bytes(run.end_marker)  # read once: the trainer may delete it meanwhile
        return found is not None and not (is_earlier and found == before)

    return has_ended


def _end_step(content: bytes, run: RunDir) -> int:
    try:
        return int(sealed.unseal(content, run.end_marker).get("step", 0))
    except DamageError:
        return sys.maxsize  # the newest, as far as can be known
