"""The time of the storage, so that ages do not depend on the clocks of the machines.

The age of a file is the difference of two timestamps of the storage: that of the file and that of a
new one.
"""

from etils import epath

from realm_jax.storage import files


def storage_time(stamped: epath.Path) -> float:
    """The time in seconds at which the storage wrote the file `stamped`, which it replaces.

    Several processes may use one file: each gets a time after its call.
    """
    files.write_bytes(stamped, b"")
    return float(stamped.stat().mtime)
