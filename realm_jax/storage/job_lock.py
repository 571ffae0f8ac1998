"""One trainer and one index builder of a name a run: a second one waits, or is refused.

On a disk the kernel lets go of the lock of a process that dies, however it dies, so a restart never
waits for a dead one. An object store has no locks: there it is a claim, which ends by itself, and
may be lost. A restart may have to wait for a living one: the builder of a killed trainer ends its
shard.
"""

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from realm_jax.errors import RealmError, Stopped
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir
from realm_jax.storage.locks import Claim

PATIENCE = 120.0  # seconds

log = logging.getLogger(__name__)


@contextlib.contextmanager
def alone(
    run: RunDir, job: str, stop: threading.Event, *, patience: float = PATIENCE
) -> Iterator[threading.Event]:
    """The block runs as the only `job` (trainer, index_builder) of this run.

    Yields:
      What the block asks in place of `stop`: the same signal, and an error once the block is no
      longer the only one.

    Raises:
      RealmError: another one still runs after so many seconds; it is named. Or another one has
        taken over, because this one could not reach the object store for as long.
      Stopped: `stop` was set while it was waited for.
    """
    if not files.is_local(run.root):
        claim = Claim(run.leases, job)
        _await(claim.take, lambda: str(claim.holder()), run, job, stop, patience)
        with claim.kept():
            yield _StopOrLost(stop, claim)
            claim.assert_held()
        return
    path = Path(run.heartbeats) / f"{job}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:

        def locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        def holder() -> str:
            file.seek(0)
            return f"process {file.read() or 'unknown'}"

        _await(locked, holder, run, job, stop, patience)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield stop


class _StopOrLost(threading.Event):
    """The stop signal of a holder; to ask it is an error once the claim is lost.

    It is asked between steps and shards and in all waiting, and what follows a stop signal, like
    a last checkpoint, must not follow a loss.
    """

    def __init__(self, stop: threading.Event, claim: Claim):
        super().__init__()
        self._stop, self._claim = stop, claim

    def is_set(self) -> bool:
        self._claim.assert_held()
        return self._stop.is_set()

    def set(self) -> None:
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        self._stop.wait(timeout)
        return self.is_set()


def _await(
    taken: Callable[[], bool],
    holder: Callable[[], str],
    run: RunDir,
    job: str,
    stop: threading.Event,
    patience: float,
) -> None:
    until, told = time.monotonic() + patience, False
    while not taken():
        if not told:
            log.info("another %s works on this run (%s); waiting for its end", job, holder())
            told = True
        if stop.wait(0.1):
            raise Stopped("start")
        if time.monotonic() > until:
            raise RealmError(
                f"another {job} works on this run",
                where=run.workdir,
                expected=f"one {job} a run",
                found=holder(),
                fix="end that one first, or choose another --workdir",
            )
