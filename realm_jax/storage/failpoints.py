"""Named places where a test makes a process die, hang or fail: `REALM_FAILPOINT=name[:n][=action]`.

`published_index.staged:2=kill` kills the process the second time it gets there; a name stands for
all that begin with it and a dot, so `file:7=full` is the seventh file operation of any sort. Where
nothing is armed, a point costs one comparison. `docs/dev/fault_injection.md` lists the points.

Actions: `kill` (the default) SIGKILL, `terminate` SIGTERM, `hang` SIGSTOP, `error` an I/O error,
`full` no space left, `short` half of what was to be written and then no space left.
"""

import contextlib
import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from realm_jax.errors import ConfigError

VARIABLE = "REALM_FAILPOINT"
_SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "hang": signal.SIGSTOP}
_ERRORS = {"error": errno.EIO, "full": errno.ENOSPC, "short": errno.ENOSPC}
_SPEC = re.compile(r"(?P<name>[a-z_.]{1,60})(:(?P<n>[0-9]{1,9}))?(=(?P<action>[a-z]{1,12}))?")


@dataclass
class Armed:
    """One failpoint that waits to be reached."""

    name: str
    n: int = 1
    action: str = "kill"
    reached: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, name: str) -> bool:
        """Counts a visit to the point `name`; true at the n-th that matches."""
        if name != self.name and not name.startswith(f"{self.name}."):
            return False
        with self._counting:
            self.reached += 1
            return self.reached == self.n


def parse(spec: str) -> Armed:
    """Reads `name[:n][=action]`.

    Raises:
      ConfigError: another form, or an action that there is none of.
    """
    found = _SPEC.fullmatch(spec)
    action = (found["action"] or "kill") if found else ""
    if found is None or action not in {**_SIGNALS, **_ERRORS}:
        raise ConfigError(
            "failpoint cannot be read",
            where=VARIABLE,
            expected="name[:n][=action], action one of " + ", ".join([*_SIGNALS, *_ERRORS]),
            found=repr(spec),
        )
    return Armed(found["name"], int(found["n"] or 1), action)


def failpoint(name: str, half: Callable[[], object] = lambda: None) -> None:
    """Does nothing, unless a test armed the point `name`.

    Args:
      name: of the point.
      half: does the first half of the work to come; called before the failure of a `short` one.

    Raises:
      OSError: what the action says.
    """
    if _armed is None or not _armed.is_due(name):
        return
    if _armed.action in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[_armed.action])
        return
    if _armed.action == "short":
        half()
    code = _ERRORS[_armed.action]
    raise OSError(code, f"{os.strerror(code)} (failpoint {name})")


@contextlib.contextmanager
def armed(spec: str) -> Iterator[Armed]:
    """Arms a point for a block of this process, in place of what the environment names."""
    global _armed  # noqa: PLW0603 - one per process, like the environment variable it stands for
    before, _armed = _armed, parse(spec)
    try:
        yield _armed
    finally:
        _armed = before


def arm_from_environment() -> None:
    """Arms what `REALM_FAILPOINT` names, or nothing; importing this module has done it once."""
    global _armed  # noqa: PLW0603
    _armed = parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


_armed: Armed | None = None
arm_from_environment()
