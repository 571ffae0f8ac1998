"""`flock`, where there is any: some network file systems do not support it."""

import contextlib
import errno
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from realm_jax.errors import RealmError

# EBADF: of NFS, which locks only files that are open for writing.
_UNSUPPORTED = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_POLL_SECONDS = 0.01
_QUIET_SECONDS = 1.0  # shorter waits, as for a publication, are not logged

log = logging.getLogger(__name__)


class NoFlockError(RealmError):
    """The file system does not support `flock`."""


def try_flock(file: IO[Any] | int, where: Path) -> bool:
    """Whether this process now holds the `flock` of an open file.

    Args:
      file: open, or its descriptor.
      where: its path, for messages.

    Raises:
      NoFlockError: the file system does not support it.
      RealmError: the file cannot be locked for another reason.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise (NoFlockError if error.errno in _UNSUPPORTED else RealmError)(
            "the file cannot be locked",
            where=where,
            expected="a file system with working locks",
            found=f"{type(error).__name__}: {error}",
            fix="repair the file system, or choose a --workdir on another one",
        ) from error
    return True


@contextlib.contextmanager
def exclusive(path: Path, waiting: str, advice: str, mode: str = "ab") -> Iterator[None]:
    """Holds the `flock` of a file; waits for its holder. Without `flock`, it only warns.

    Args:
      path: the file.
      waiting: logged once if its holder keeps it for more than a second.
      advice: logged if the file system does not support `flock`; see `warn_without_flock`.
      mode: `ab` creates the file if it does not exist; `rb` needs no permission to write.

    Raises:
      RealmError: the file cannot be locked for another reason.
    """
    with path.open(mode) as file:
        if not _locked(file, path, waiting):
            warn_without_flock(path.parent, advice)
        yield


@contextlib.contextmanager
def exclusive_folder(folder: Path, waiting: str, advice: str) -> Iterator[None]:
    """Holds the `flock` of a folder, which it creates; see `exclusive`. Leaves no file in it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if not _locked(descriptor, folder, waiting):
                warn_without_flock(folder, advice)
            if _is_open_at(folder, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_open_at(path: Path, descriptor: int) -> bool:
    """False if another process has deleted the file or folder since it was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def warn_without_flock(folder: object, advice: str) -> None:
    """Logs what to do because nothing excludes other processes, for example "run one at a time"."""
    log.warning("%s has no file locks: %s", folder, advice)


def _locked(file: IO[Any] | int, path: Path, waiting: str) -> bool:
    """Waits for the `flock`; returns False if the file system does not support it."""
    began, logged = time.monotonic(), False
    try:
        while not try_flock(file, path):
            if not logged and time.monotonic() - began > _QUIET_SECONDS:
                log.info("%s", waiting)
                logged = True
            time.sleep(_POLL_SECONDS)
    except NoFlockError:
        return False
    return True


def has_flock(folder: Path) -> bool:
    """Whether the file system of a folder, which need not exist, supports `flock`."""
    existing = next(one for one in [folder, *folder.absolute().parents] if one.is_dir())
    with tempfile.TemporaryFile(dir=existing) as file:
        try:
            return try_flock(file, existing)
        except NoFlockError:
            return False
