"""Names a process so that another one can judge whether it has ended.

A process id means the same process only within one boot of one machine and one PID namespace:
containers may share a hostname and give their processes the same ids. The start time tells a
process from a later one with the same id.
"""

import os
import socket
from pathlib import Path
from typing import Any

_PROC = Path("/proc")  # Linux only


def identity() -> dict[str, Any]:
    """JSON fields of this process: host, pid, boot, pid_namespace and started.

    The last three are None where the system does not report them.
    """
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot": _boot(),
        "pid_namespace": _pid_namespace(),
        "started": _started(os.getpid()),
    }


def has_ended(other: dict[str, Any]) -> bool:
    """Whether the process with this identity has ended; False if that cannot be judged here."""
    here = {"boot": _boot(), "pid_namespace": _pid_namespace()}
    if None in here.values() or any(other.get(name) != value for name, value in here.items()):
        return False
    try:
        os.kill(other["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists and belongs to another user
    started = _started(other["pid"])
    return started is not None and started != other.get("started")


def _boot() -> str | None:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _pid_namespace() -> int | None:
    try:
        return (_PROC / "self/ns/pid").stat().st_ino
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """The start time of a process in clock ticks since the boot; -1 for a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # after the name, which may hold spaces
    return -1 if state in "ZX" else int(fields[18])
