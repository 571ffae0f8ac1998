"""The time of the storage, so that ages do not depend on the clocks of the machines.

The age of a file is the difference of two timestamps of the storage: that of the file and that of a
new one.
"""

from pathlib import Path

from etils import epath

from realm_jax.storage import files


def modified(path: epath.Path) -> float:
    """The time in seconds at which the storage wrote a file last.

    `path.stat()` does not tell: on S3 its `mtime` is always 0.

    Raises:
      FileNotFoundError: there is no such file.
    """
    if files.is_local(path):
        return Path(path).stat().st_mtime
    store, inside = files.on_store(path)
    return float(store.modified(inside).timestamp())


def storage_time(stamped: epath.Path) -> float:
    """The time in seconds at which the storage wrote the file `stamped`, which it replaces.

    Several processes may use one file: each gets a time after its call.
    """
    files.write_bytes(stamped, b"")
    return modified(stamped)
