"""Failpoints for tests: named lines of code that kill or stop the process, or raise an I/O error.

`REALM_FAILPOINT=name[:n][=action]` arms one. `published_index.staged:2=kill` kills the process when
it reaches that point for the second time. A name also matches all names that start with it and a
dot: `file:7=full` fails the seventh file operation of any kind. If no failpoint is armed, each call
costs one comparison. `docs/dev/fault_injection.md` lists the points.

Actions: `kill` (the default) sends SIGKILL, `terminate` SIGTERM, `hang` SIGSTOP; `error` raises an
I/O error, `full` "no space left"; `short` writes the first half and then raises "no space left".
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
    """An armed failpoint, and how often it was reached."""

    name: str
    n: int = 1
    action: str = "kill"
    reached: int = 0
    _counting: contextlib.AbstractContextManager[bool] = field(default_factory=threading.Lock)

    def is_due(self, name: str) -> bool:
        """Counts one call of `failpoint(name)`; True for the n-th call that matches."""
        if name != self.name and not name.startswith(f"{self.name}."):
            return False
        with self._counting:
            self.reached += 1
            return self.reached == self.n


def parse(spec: str) -> Armed:
    """Reads `name[:n][=action]`.

    Raises:
      ConfigError: the text has another form, or the action is unknown.
    """
    found = _SPEC.fullmatch(spec)
    action = (found["action"] or "kill") if found else ""
    if found is None or action not in {**_SIGNALS, **_ERRORS}:
        raise ConfigError(
            "failpoint cannot be parsed",
            where=VARIABLE,
            expected="name[:n][=action], action one of " + ", ".join([*_SIGNALS, *_ERRORS]),
            found=repr(spec),
        )
    return Armed(found["name"], int(found["n"] or 1), action)


def failpoint(name: str, half: Callable[[], object] = lambda: None) -> None:
    """Does nothing unless a test has armed the failpoint `name`.

    Args:
      name: the failpoint.
      half: does the first half of the following work; called before the action `short` fails.

    Raises:
      OSError: the error of the action.
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
    """Arms a failpoint in this process for a block, instead of the one from the environment."""
    global _armed  # noqa: PLW0603 - one per process
    before, _armed = _armed, parse(spec)
    try:
        yield _armed
    finally:
        _armed = before


def arm_from_environment() -> None:
    """Arms the failpoint in `REALM_FAILPOINT`, if any; also called when this module is imported."""
    global _armed  # noqa: PLW0603
    _armed = parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


_armed: Armed | None = None
arm_from_environment()
