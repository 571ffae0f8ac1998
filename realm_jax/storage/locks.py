"""Who alone may do a thing: a trainer its run, a builder one shard, one of them the finishing.

A claim is a file that could only be created, not overwritten; its holder renews it. Whoever finds
it expired, released or its holder dead creates the next in number, which again only one can. So
nothing is deleted and made anew, and nothing relies on rename. A holder that could not renew its
claim in time looks, before it does so again, whether another one has taken it.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from realm_jax.errors import DamageError, RealmError
from realm_jax.storage import files

SECONDS = 60.0  # a claim outlives its last renewal by this
RETRY = 1.0  # seconds after a renewal that failed

log = logging.getLogger(__name__)


class Claim:
    """The claim to `name` in a folder.

    Args:
      folder: where its files lie.
      name: of what is claimed.
      seconds: life after `take` and `renew`.
      clock: wall time in seconds.

    Attributes:
      lost: set once another one is found to have taken it.
    """

    def __init__(
        self,
        folder: epath.Path,
        name: str,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.time,
    ):
        self._folder, self._prefix = folder, f"{name}.claim."
        self._where = folder / f"{name}.claim"  # for words
        self._seconds, self._clock = seconds, clock
        self._mine: int | None = None  # the number of the file
        self.lost = threading.Event()

    def take(self) -> bool:
        """Whether this process holds the claim from now on."""
        if self._mine is not None:
            return True
        numbers = self._numbers()
        if numbers and self._held(self._path(numbers[-1])):
            return False
        number = numbers[-1] + 1 if numbers else 0
        if not files.create(self._path(number), files.seal(self._content())):
            return False
        self._mine = number
        self.lost.clear()
        for old in numbers:  # nobody looks at any but the last
            files.delete_file(self._path(old))
        return True

    def renew(self) -> None:
        """Starts the claim's life again, or sets `lost`; call it several times per `seconds`."""
        if self._mine is None:
            return
        if self._mine < max(self._numbers(), default=0):
            self._mine = None
            self.lost.set()
        else:
            self._write(self._mine, self._content())

    def assert_held(self) -> None:
        """Call it before what one alone may do.

        Raises:
          RealmError: another one has taken the claim.
        """
        if self.lost.is_set():
            raise RealmError(
                "another process has taken over the work of this one",
                where=self._where,
                expected=f"a sign of life of this one at least every {self._seconds:.0f} s",
                found="none that reached the storage: it could not be written to, or this process "
                "was held up",
                fix="leave the work to the other one; or end that, mend the storage, and run the "
                "same command again",
            )

    def release(self) -> None:
        """Lets another take it at once."""
        if self._mine is not None:
            self._write(self._mine, {**self._content(), "expires": 0.0})
            self._mine = None

    def _write(self, number: int, content: dict[str, Any]) -> None:
        """What was claimed may be done and deleted, claims and all, by whoever finished it."""
        with contextlib.suppress(FileNotFoundError):
            files.write_sealed(self._path(number), content)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Renews what `take` took until the block ends, then releases it."""
        over = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(over,), name="claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.release()

    def _renew_until(self, over: threading.Event) -> None:
        pause, told = self._seconds / 4, False
        while not over.wait(min(pause, RETRY) if told else pause):
            try:
                self.renew()
                told = False
            except Exception as error:  # noqa: BLE001 - object stores have errors of their own
                if not told:
                    self._tell(error)
                told = True

    def _tell(self, error: Exception) -> None:
        log.error(
            "%s cannot be renewed, which is tried again and again; after %.0f s another process "
            "may take over: %s: %s",
            self._where,
            self._seconds,
            type(error).__name__,
            error,
        )

    def holder(self) -> dict[str, Any] | None:
        """Host, pid and expiry of whoever holds it; None if nobody does."""
        numbers = self._numbers()
        return self._held(self._path(numbers[-1])) if numbers else None

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

    def _held(self, path: epath.Path) -> dict[str, Any] | None:
        try:
            content = files.read_sealed(path)
        except DamageError:  # met while it is being written, or never finished: its age tells
            fresh = path.exists() and path.stat().mtime + self._seconds > self._clock()
            return {"host": "unknown", "pid": 0, "expires": None} if fresh else None
        if content is None or content["expires"] < self._clock() or _is_dead(content):
            return None
        return content


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the holder ran on this host and is no more; of other hosts only expiry tells."""
    if holder["host"] != socket.gethostname():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
