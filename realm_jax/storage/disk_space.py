"""Checks that a folder can be written, and how much space is left there."""

import os
import shutil
from pathlib import Path

from realm_jax.errors import RealmError


def free_bytes(folder: str | os.PathLike[str]) -> int | None:
    """Free bytes of the disk that holds a folder, which need not exist; None in an object store.

    Raises:
      RealmError: the folder cannot be created or written.
    """
    if "://" in os.fspath(folder):
        return None
    path = Path(folder).absolute()
    existing = next(parent for parent in [path, *path.parents] if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise RealmError(
            "the folder cannot be written",
            where=folder,
            expected="a folder with write permission",
            found=existing if existing.is_dir() else f"{existing}, a file",
            fix="choose another folder, or give this user permission to write there",
        )
    return shutil.disk_usage(existing).free
