"""One trainer and one index builder a run: a second one waits for the first to end, or is refused.

The kernel lets go of the lock of a process that dies, however it dies, so a restart never waits for
a dead one. It may have to wait for a living one: the builder of a killed trainer ends its shard.
"""

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm_jax.errors import RealmError
from realm_jax.exchange import files
from realm_jax.exchange.layout import RunDir

PATIENCE = 120.0  # seconds

log = logging.getLogger(__name__)


@contextlib.contextmanager
def alone(
    run: RunDir, job: str, stop: threading.Event, *, patience: float = PATIENCE
) -> Iterator[None]:
    """The block runs as the only `job` (trainer, index_builder) of this run on this disk.

    Object stores have no locks: there nothing but the launcher keeps jobs from running twice.

    Raises:
      RealmError: another one still runs, after so many seconds or when `stop` is set; it is named.
    """
    if not files.is_local(run.root):
        yield
        return
    path = Path(run.heartbeats) / f"{job}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        _lock(file, job, stop, patience)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _lock(file: Any, job: str, stop: threading.Event, patience: float) -> None:
    until, told = time.monotonic() + patience, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            file.seek(0)
            other = file.read() or "unknown"
        if not told:
            log.info("another %s works on this run (process %s); waiting for its end", job, other)
            told = True
        if stop.wait(0.1) or time.monotonic() > until:
            raise RealmError(
                f"another {job} works on this run",
                where=file.name,
                expected=f"one {job} a run",
                found=f"process {other}",
                fix="end that one first, or choose another --workdir",
            )
