"""Locks: at most one writer at a time does a piece of work.

`job_lock` allows one trainer and one index builder of a name per run. On a local disk it uses
`flock`: the kernel releases the lock when the process ends, however it ends. Where there is no
`flock` (object stores, some network file systems) it uses `Lock`.

A `Lock` is a file that can only be created, never overwritten by a second process. Its holder
renews it. If a process finds it expired or released, or its holder dead, it creates the file with
the next number, which again only one process can do. This needs neither deletion nor rename to be
atomic. A holder that could not renew its lock in time checks, before it renews, whether another
process has taken over.
"""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from etils import epath

from realm_jax.errors import DamageError, RealmError, Stopped
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir

SECONDS = 60.0  # a lock expires this long after its last renewal
RETRY_SECONDS = 1.0  # between attempts to renew after one has failed
WAIT_SECONDS = 120.0  # for the previous process of a job to end
_NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

log = logging.getLogger(__name__)


class Lock:
    """The lock called `name` in a folder; a file that expires.

    Args:
      folder: where the lock files are.
      name: of what is locked.
      seconds: until the lock expires after `acquire` and `renew`.
      clock: wall time in seconds.

    Attributes:
      lost: set once another process is found to have acquired the lock.
    """

    def __init__(
        self,
        folder: epath.Path,
        name: str,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.time,
    ):
        self._folder, self._prefix = folder, f"{name}.lock."
        self._where = folder / f"{name}.lock"  # for messages
        self._seconds, self._clock = seconds, clock
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
        if not files.create(self._path(number), files.seal(self._content())):
            return False
        self._number = number
        self.lost.clear()
        for old in numbers:  # only the highest number counts
            files.delete_file(self._path(old))
        return True

    def renew(self) -> None:
        """Postpones the expiry, or sets `lost`; call it several times per `seconds`."""
        if self._number is None:
            return
        if self._number < max(self._numbers(), default=0):
            self._number = None
            self.lost.set()
        else:
            self._write(self._number, self._content())

    def assert_held(self) -> None:
        """Call it before an action that only the holder may do.

        Raises:
          RealmError: another process has acquired the lock.
        """
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
            self._write(self._number, {**self._content(), "expires": 0.0})
            self._number = None

    def _write(self, number: int, content: dict[str, Any]) -> None:
        # Another process may have finished the work and deleted its folder, the lock included.
        with contextlib.suppress(FileNotFoundError):
            files.write_sealed(self._path(number), content)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews an acquired lock in a thread until the block ends, then releases it."""
        over = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(over,), name="lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.release()

    def _renew_until(self, over: threading.Event) -> None:
        pause, failed = self._seconds / 4, False
        while not over.wait(min(pause, RETRY_SECONDS) if failed else pause):
            try:
                self.renew()
                failed = False
            except Exception as error:  # noqa: BLE001 - object stores raise errors of any type
                if not failed:
                    self._log_failure(error)
                failed = True

    def _log_failure(self, error: Exception) -> None:
        log.error(
            "%s cannot be renewed; retrying. After %.0f s another process may take over: %s: %s",
            self._where,
            self._seconds,
            type(error).__name__,
            error,
        )

    def holder(self) -> dict[str, Any] | None:
        """Host, pid and expiry of the process that holds the lock; None if no process does."""
        numbers = self._numbers()
        return self._read_holder(self._path(numbers[-1])) if numbers else None

    def _content(self) -> dict[str, Any]:
        expires = self._clock() + self._seconds
        return {"host": socket.gethostname(), "pid": os.getpid(), "expires": expires}

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
        try:
            content = files.read_sealed(path)
        except DamageError:  # it is being written, or its writer was killed: its age decides
            recent = path.exists() and path.stat().mtime + self._seconds > self._clock()
            return {"host": "unknown", "pid": 0, "expires": None} if recent else None
        if content is None or content["expires"] < self._clock() or _is_dead(content):
            return None
        return content


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the holder ran on this host and has ended; on other hosts only the expiry counts."""
    if holder["host"] != socket.gethostname():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextlib.contextmanager
def job_lock(
    run: RunDir, job: str, stop: threading.Event, *, wait_seconds: float = WAIT_SECONDS
) -> Iterator[threading.Event]:
    """Runs the block as the only process of `job` (trainer, index_builder) of this run.

    Waits for a previous process: the builder of a killed trainer first finishes its shard.

    Yields:
      The event to check instead of `stop`: the same signal, but to check it raises RealmError once
      the lock is lost.

    Raises:
      RealmError: another process still runs after `wait_seconds`; the error names it. Or another
        process has taken over, because this one could not reach the storage in time.
      Stopped: `stop` was set while waiting.
    """
    file = _open_for_flock(run, job)
    if file is None:
        lock = Lock(run.leases, job)
        _wait_for(lock.acquire, lambda: str(lock.holder()), run, job, stop, wait_seconds)
        with lock.renewed():
            yield _StopUnlessLost(stop, lock)
            lock.assert_held()
        return
    with file:
        _wait_for(lambda: _flock(file), lambda: _read_pid(file), run, job, stop, wait_seconds)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield stop


def _open_for_flock(run: RunDir, job: str) -> TextIO | None:
    """Opens the file to call `flock` on; None if the storage of this run has no `flock`."""
    if not files.is_local(run.root):
        return None
    path = Path(run.heartbeats) / f"{job}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        _flock(file)
    except OSError as error:
        file.close()
        if error.errno not in _NO_FLOCK:
            raise
        log.warning("%s: %s; using a lock file that expires instead", path, error.strerror)
        return None
    return file


def _flock(file: TextIO) -> bool:
    """Whether this process now holds the `flock` of an open file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(file: TextIO) -> str:
    file.seek(0)
    return f"process {file.read() or 'unknown'}"


class _StopUnlessLost(threading.Event):
    """The stop signal of a lock holder; to check it raises RealmError once the lock is lost.

    It is checked between steps and shards and in every wait. What follows a stop signal, such as a
    last checkpoint, must not follow the loss of the lock.
    """

    def __init__(self, stop: threading.Event, lock: Lock):
        super().__init__()
        self._stop, self._lock = stop, lock

    def is_set(self) -> bool:
        self._lock.assert_held()
        return self._stop.is_set()

    def set(self) -> None:
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        self._stop.wait(timeout)
        return self.is_set()


def _wait_for(
    acquire: Callable[[], bool],
    holder: Callable[[], str],
    run: RunDir,
    job: str,
    stop: threading.Event,
    wait_seconds: float,
) -> None:
    until, logged = time.monotonic() + wait_seconds, False
    while not acquire():
        if not logged:
            log.info("another %s works on this run (%s); waiting until it ends", job, holder())
            logged = True
        if stop.wait(0.1):
            raise Stopped("start")
        if time.monotonic() > until:
            raise RealmError(
                f"another {job} works on this run",
                where=run.workdir,
                expected=f"one {job} per run",
                found=holder(),
                fix="stop the other one first, or choose another --workdir",
            )
