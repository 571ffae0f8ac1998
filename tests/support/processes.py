"""Starts real `realm` processes in tests, waits for them, and reads their state from outside."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from realm_jax.errors import DamageError
from realm_jax.runtime import realm_command
from realm_jax.storage import sealed
from realm_jax.storage.layout import RunDir
from support.compiler_flags import quick_compilation
from support.fork_server import ForkedProcess, ForkServer


def environment(compiled: Path) -> dict[str, str]:
    """Returns environment variables for one CPU device and a compilation cache in `compiled`."""
    return {
        **os.environ,
        "XLA_FLAGS": quick_compilation(),
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


class RealmProcess:
    """A `realm` process that writes its output to files.

    Args:
      folder: stdout.txt and stderr.txt are written here.
      start: environment variables of a fresh process, or a ForkServer that forks it.
      arguments: command-line arguments of `realm`.
      added: environment variables to add.
    """

    def __init__(
        self,
        folder: Path,
        start: dict[str, str] | ForkServer,
        *arguments: object,
        added: Mapping[str, str] = MappingProxyType({}),
    ):
        self.out, self.err = folder / "stdout.txt", folder / "stderr.txt"
        self.process: subprocess.Popen[bytes] | ForkedProcess
        if isinstance(start, ForkServer):
            self.process = start.start([*map(str, arguments)], dict(added), self.out, self.err)
            return
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                realm_command(*arguments),
                stdout=out,
                stderr=err,
                env={**start, **added},
                start_new_session=True,
            )

    def wait(self, code: int, seconds: float = 600.0) -> str:
        """Waits for the process, asserts its exit code, and returns its stderr."""
        found = self.process.wait(seconds)
        text = self.err.read_text()
        assert found == code, text
        assert "Traceback" not in text
        return text

    def json(self) -> Any:
        """Returns the last line of stdout, parsed as JSON."""
        return json.loads(self.out.read_text().splitlines()[-1])

    def until(self, holds: Callable[[], bool], what: str, seconds: float = 600.0) -> None:
        """Waits until `holds()` is true; fails if the process ends or the time is over.

        Args:
          holds: the condition, tested every 0.05 s.
          what: name of the condition, for the failure message.
          seconds: time limit.
        """
        stop = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, f"ended before {what}:\n{self.err.read_text()}"
            assert time.monotonic() < stop, f"no {what} in time:\n{self.err.read_text()}"
            time.sleep(0.05)


def kill_all(started: Iterable[RealmProcess]) -> None:
    """Kills the process groups of those that still run, and waits for them."""
    for one in started:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


def builder_pid(run: RunDir) -> int | None:
    """Returns the process id in the index builder's heartbeat, or None without a heartbeat."""
    try:
        beat = sealed.read(run.heartbeats / "index_builder.json")
    except DamageError:
        return None
    return None if beat is None else int(beat["pid"])


def process_state(pid: int) -> str:
    """Returns the state letter from /proc (R running, S sleeping, T stopped, Z zombie), or ""."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def logged_swaps(run: RunDir) -> list[tuple[int, int]]:
    """Returns (step, index step) of every swap in the trainer's swap log."""
    if not run.swaps.exists():
        return []
    records = [json.loads(line) for line in run.swaps.read_text().splitlines()]
    return [(record["step"], record["index_step"]) for record in records]
