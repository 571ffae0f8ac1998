"""Emulates how the Linux NFS client deletes files that this process has open or memory-mapped."""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_MAPS, _OPEN = Path("/proc/self/maps"), Path("/proc/self/fd")


@contextlib.contextmanager
def nfs_client(root: Path) -> Iterator[None]:
    """During the block, deletions below `root` are those of an NFS client (fs/nfs/unlink.c).

    A file that is in use is renamed to `.nfs*` in its folder, and deleting it again fails with
    EBUSY. Unlike on NFS, it stays after it is closed.
    """
    if not _MAPS.exists():
        pytest.skip("needs /proc, which lists the files that a process has mapped")
    delete, below = os.unlink, Path(root).resolve()

    def unlink(name: Any, *, dir_fd: int | None = None) -> None:
        given = Path(name)
        folder = given.parent.resolve() if dir_fd is None else (_OPEN / str(dir_fd)).readlink()
        path = folder / given.name
        if not path.is_relative_to(below) or str(path) not in _in_use():
            delete(name, dir_fd=dir_fd)
        elif path.name.startswith(".nfs"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        else:
            path.rename(folder / f".nfs{uuid.uuid4().hex[:24]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        patch.setattr(os, "remove", unlink)
        yield


def _in_use() -> set[str]:
    """The files that this process has open or memory-mapped."""
    lines = _MAPS.read_text().splitlines()
    used = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    for descriptor in _OPEN.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed
            used.add(str(descriptor.readlink()))
    return used
