"""Real `realm` processes for tests: started, waited for, looked at from outside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from realm_jax.errors import DamageError
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir
from support.fork_server import Forked, ForkServer


def environment(compiled: Path) -> dict[str, str]:
    """One device, and compiled programs kept in `compiled` between processes."""
    return {
        **os.environ,
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # tiny models: compiling is the most
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


class Command:
    """A `realm` process with its output in files.

    Args:
      folder: gets stdout.txt and stderr.txt.
      start: the environment of a fresh process, or a fork_server to fork it.
      arguments: of `realm`.
      added: to its environment.
    """

    def __init__(
        self,
        folder: Path,
        start: dict[str, str] | ForkServer,
        *arguments: object,
        added: Mapping[str, str] = MappingProxyType({}),
    ):
        self.out, self.err = folder / "stdout.txt", folder / "stderr.txt"
        self.process: subprocess.Popen[bytes] | Forked
        if isinstance(start, ForkServer):
            self.process = start.start([*map(str, arguments)], dict(added), self.out, self.err)
            return
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "realm_jax.cli.main", *map(str, arguments)],
                stdout=out,
                stderr=err,
                env={**start, **added},
                start_new_session=True,
            )

    def wait(self, code: int, seconds: float = 600.0) -> str:
        """Its stderr, once it ended as expected."""
        found = self.process.wait(seconds)
        text = self.err.read_text()
        assert found == code, text
        assert "Traceback" not in text
        return text

    def json(self) -> Any:
        """The last line of stdout."""
        return json.loads(self.out.read_text().splitlines()[-1])

    def until(self, holds: Callable[[], bool], what: str, seconds: float = 600.0) -> None:
        """Waits for something to be so while the process runs."""
        stop = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, f"ended before {what}:\n{self.err.read_text()}"
            assert time.monotonic() < stop, f"no {what} in time:\n{self.err.read_text()}"
            time.sleep(0.05)


def builder_of(run: RunDir) -> int | None:
    """The process id of the index builder, once it has shown itself."""
    try:
        beat = files.read_sealed(run.heartbeats / "index_builder.json")
    except DamageError:
        return None
    return None if beat is None else int(beat["pid"])


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does (R, S, T stopped, Z dead); "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def swaps_of(run: RunDir) -> list[tuple[int, int]]:
    """(step, index step) of every swap logged so far."""
    if not run.swaps.exists():
        return []
    records = [json.loads(line) for line in run.swaps.read_text().splitlines()]
    return [(record["step"], record["index_step"]) for record in records]
