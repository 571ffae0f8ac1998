"""Who alone may do a thing: a trainer its run, a builder one shard, one of them the finishing.

A claim is a file that could only be created, not overwritten; its holder renews it. Whoever finds
it expired, released or its holder dead creates the next in number, which again only one can. So
nothing is deleted and made anew, and nothing relies on rename.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from realm_jax.errors import DamageError
from realm_jax.exchange import files

SECONDS = 60.0  # a claim outlives its last renewal by this


class Claim:
    """The claim to `name` in a folder.

    Args:
      folder: where its files lie.
      name: of what is claimed.
      seconds: life after `take` and `renew`.
      clock: wall time in seconds.
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
        self._seconds, self._clock = seconds, clock
        self._mine: epath.Path | None = None

    def take(self) -> bool:
        """Whether this process holds the claim from now on."""
        if self._mine is not None:
            return True
        numbers = self._numbers()
        if numbers and self._held(self._path(numbers[-1])):
            return False
        path = self._path(numbers[-1] + 1 if numbers else 0)
        if not files.create(path, files.seal(self._content())):
            return False
        self._mine = path
        for number in numbers:  # nobody looks at any but the last
            files.delete_file(self._path(number))
        return True

    def renew(self) -> None:
        """Starts the claim's life again; call it several times per `seconds`."""
        if self._mine is not None:
            self._write(self._mine, self._content())

    def release(self) -> None:
        """Lets another take it at once."""
        if self._mine is not None:
            self._write(self._mine, {**self._content(), "expires": 0.0})
            self._mine = None

    def _write(self, path: epath.Path, content: dict[str, Any]) -> None:
        """What was claimed may be done and deleted, claims and all, by whoever finished it."""
        with contextlib.suppress(FileNotFoundError):
            files.write_sealed(path, content)

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
        while not over.wait(self._seconds / 4):
            self.renew()

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
