"""Locks: at most one writer at a time does a piece of work.

`job_lock` allows one trainer and one index builder of a name per run. On a local disk it uses
`flock`: the kernel releases the lock when the process ends, however it ends. Where there is no
`flock` (object stores, some network file systems) it uses `Lock`.

A `Lock` is a file that can only be created, never overwritten by a second process. Its holder
renews it. If a process finds it expired or released, or its holder dead, it creates the file with
the next number, which again only one process can do. This needs neither deletion nor rename to be
atomic. A holder that could not renew its lock in time checks, before it renews, whether another
process has taken over.

Whether a lock has expired follows from two timestamps of the storage (`storage_clock`), not from
the clocks of the machines. Whether its holder has ended is only judged on the same boot of the same
machine and in the same PID namespace (`process_identity`).
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from etils import epath

from realm_jax.errors import DamageError, RealmError, Stopped
from realm_jax.storage import files, sealed
from realm_jax.storage.flock import NoFlockError, try_flock
from realm_jax.storage.layout import RunDir
from realm_jax.storage.process_identity import has_ended, identity
from realm_jax.storage.renewal import renewed
from realm_jax.storage.storage_clock import modified, storage_time

SECONDS = 60.0  # a lock expires this long after its last renewal
WAIT_SECONDS = 120.0  # for the previous process of a job to end
_POLL_SECONDS = 1.0  # between attempts to acquire a `Lock`, each a few requests to the storage
_FLOCK_POLL_SECONDS = 0.1

log = logging.getLogger(__name__)


class Lock:
    """The lock called `name` in a folder; a file that expires.

    Args:
      folder: where the lock files are.
      name: of what is locked.
      seconds: until the lock expires after `acquire` and `renew`.
      clock: the time of the storage in seconds; None reads it from a new file.

    Attributes:
      lost: set once another process is found to have acquired the lock.
    """

    def __init__(
        self,
        folder: epath.Path,
        name: str,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] | None = None,
    ):
        self._folder, self._prefix = folder, f"{name}.lock."
        self._where = folder / f"{name}.lock"  # for messages
        stamped = folder / f"clock_{name}"
        self._seconds = seconds
        self._clock = (lambda: storage_time(stamped)) if clock is None else clock
        self._number: int | None = None  # of the file that this process created
        self.lost = threading.Event()

    def acquire(self) -> bool:
        """Tries once; returns whether this process now holds the lock."""
        if self._number is not None:
            return True
        numbers = self._numbers()
        if numbers and self._read_holder(self._path(numbers[-1])):
            return False
        number = numbers[-1] + 1 if numbers else 0
        if not files.create(self._path(number), sealed.seal(self._content())):
            return False
        if number < max(self._numbers(), default=number):  # others had it since they were listed
            files.delete_file(self._path(number))
            return False
        self._number = number
        self.lost.clear()
        for old in numbers:  # only the highest number counts
            files.delete_file(self._path(old))
        return True

    def renew(self) -> None:
        """Postpones the expiry, or sets `lost`; call it several times per `seconds`."""
        self._detect_loss()
        if self._number is not None:
            self._write(self._number, self._content())

    def _detect_loss(self) -> None:
        if self._number is not None and self._number < max(self._numbers(), default=0):
            self._number = None
            self.lost.set()

    def assert_held(self) -> None:
        """Asks the storage; call it just before an action that only the holder may do.

        Raises:
          RealmError: another process has acquired the lock.
        """
        self._detect_loss()
        self.assert_not_lost()

    def assert_not_lost(self) -> None:
        """Like `assert_held`, but detects a loss only once this process has tried to renew."""
        if self.lost.is_set():
            raise RealmError(
                "another process has taken over the work of this one",
                where=self._where,
                expected=f"this process renews its lock at least every {self._seconds:.0f} s",
                found="no renewal reached the storage in that time: the storage could not be "
                "written, or this process was suspended",
                fix="let the other process work; or stop it, repair the storage, and run the same "
                "command again",
            )

    def release(self) -> None:
        """Lets another process acquire the lock at once."""
        if self._number is not None:
            self._write(self._number, {**self._content(), "released": True})
            self._number = None

    def _write(self, number: int, content: dict[str, Any]) -> None:
        # Another process may have finished the work and deleted its folder, the lock included.
        with contextlib.suppress(FileNotFoundError):
            sealed.write(self._path(number), content)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews an acquired lock in a thread until the block ends, then releases it."""
        what = f"after {self._seconds:.0f} s without renewal another process may take {self._where}"
        try:
            with renewed(self.renew, self._seconds, what):
                yield
        finally:
            self.release()

    def holder(self) -> dict[str, Any] | None:
        """`identity` of the process that holds the lock, and `seconds`; None if no process does."""
        numbers = self._numbers()
        return self._read_holder(self._path(numbers[-1])) if numbers else None

    def _content(self) -> dict[str, Any]:
        return {**identity(), "seconds": self._seconds}

    def _numbers(self) -> list[int]:
        endings = [
            name.removeprefix(self._prefix)
            for name in files.list_names(self._folder)
            if name.startswith(self._prefix)
        ]
        return sorted(int(ending) for ending in endings if ending.isdecimal())

    def _path(self, number: int) -> epath.Path:
        return self._folder / f"{self._prefix}{number}"

    def _read_holder(self, path: epath.Path) -> dict[str, Any] | None:
        now = self._clock()  # before the timestamp of the lock is read: never too late
        try:
            content = sealed.read(path, host=str, pid=int, seconds=(int, float))
            if content is None or content.get("released") or has_ended(content):
                return None
        except DamageError:  # it is being written, or its writer was killed: its age decides
            content = {"host": "unknown", "pid": 0, "seconds": self._seconds}
        try:
            return content if modified(path) + content["seconds"] > now else None
        except FileNotFoundError:  # deleted by the process that has just taken over
            return content


@contextlib.contextmanager
def job_lock(
    run: RunDir, job: str, stop: threading.Event, *, wait_seconds: float = WAIT_SECONDS
) -> Iterator["StopOrLost"]:
    """Runs the block as the only process of `job` (trainer, index_builder) of this run.

    Waits for a previous process: the builder of a killed trainer first finishes its shard.

    Yields:
      The event to check instead of `stop`: the same signal, but to check it raises RealmError once
      the lock is lost.

    Raises:
      RealmError: another process still runs after `wait_seconds`; the error names it. Or another
        process has taken over, because this one could not reach the storage in time. Or the lock
        file cannot be locked for another reason than a file system without `flock`.
      Stopped: `stop` was set while waiting.
    """
    file = _open_for_flock(run, job)
    if file is None:
        lock, poll = Lock(run.leases, job), _POLL_SECONDS
        holder = lambda: str(lock.holder())  # noqa: E731
        _wait_for(lock.acquire, holder, run, job, stop, wait_seconds, poll)
        with lock.renewed():
            yield StopOrLost(stop, lock)
            lock.assert_held()
        return
    with file:
        path = Path(file.name)
        acquire, holder = lambda: try_flock(file, path), lambda: _read_pid(file)
        _wait_for(acquire, holder, run, job, stop, wait_seconds, _FLOCK_POLL_SECONDS)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield StopOrLost(stop, None)


def _open_for_flock(run: RunDir, job: str) -> TextIO | None:
    """Opens the file to call `flock` on; None if the storage of this run has no `flock`."""
    if not files.is_local(run.root):
        return None
    path = Path(run.heartbeats) / f"{job}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        try_flock(file, path)
    except RealmError as error:
        file.close()
        if not isinstance(error, NoFlockError):
            raise
        log.warning("%s: %s; using a lock file that expires instead", path, error.found)
        return None
    return file


def _read_pid(file: TextIO) -> str:
    file.seek(0)
    return f"process {file.read() or 'unknown'}"


class StopOrLost(threading.Event):
    """The stop signal of a job; to check it raises RealmError once the job's lock is lost.

    It is checked between steps and shards and in every wait. What follows a stop signal, such as a
    last checkpoint, must not follow the loss of the lock.

    Args:
      stop: the signal.
      lock: of the job; None if the kernel holds its lock, which cannot be lost.
    """

    def __init__(self, stop: threading.Event, lock: Lock | None):
        super().__init__()
        self._stop, self._lock = stop, lock

    def assert_held(self) -> None:
        """See `Lock.assert_held`."""
        if self._lock is not None:
            self._lock.assert_held()

    def is_set(self) -> bool:
        if self._lock is not None:
            self._lock.assert_not_lost()
        return self._stop.is_set()

    def set(self) -> None:
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        self._stop.wait(timeout)
        return self.is_set()


def still_allowed(stop: threading.Event) -> Callable[[], None]:
    """For `commit.publish`: asserts the lock of the job whose stop signal this is, if it has one.

    A process that shares the lock of process 0 has a plain event: it publishes nothing.
    """
    return stop.assert_held if isinstance(stop, StopOrLost) else lambda: None


def _wait_for(
    acquire: Callable[[], bool],
    holder: Callable[[], str],
    run: RunDir,
    job: str,
    stop: threading.Event,
    wait_seconds: float,
    poll_seconds: float,
) -> None:
    until, logged = time.monotonic() + wait_seconds, False
    while not acquire():
        if not logged:
            log.info("another %s works on this run (%s); waiting until it ends", job, holder())
            logged = True
        if stop.wait(poll_seconds):
            raise Stopped("start")
        if time.monotonic() > until:
            raise RealmError(
                f"another {job} works on this run",
                where=run.workdir,
                expected=f"one {job} per run",
                found=holder(),
                fix="stop the other one first, or choose another --workdir",
            )
