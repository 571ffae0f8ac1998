"""A small run of both jobs for tests that harm it, and what must hold when it is over."""

import os
import signal
import socket
from pathlib import Path

from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.verify import check
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from support.fork_server import ForkServer
from support.history import assert_history
from support.processes import Command, builder_of, state_of, swaps_of

_CONFIG = """
from support.tiny_corpus import tiny_config


def get_config():
    return tiny_config({knowledge!r}, **{changes!r})
"""


class TwoJobs:
    """One run folder, and the command that is given again and again until the run is finished.

    Args:
      folder: new; config, run and outputs go there.
      fork_server: forks the processes.
      knowledge: folder of the made-up land.
      steps: of the REALM stage, the only one.
      every: steps between snapshots, and between checkpoints.
      changes: to `tiny_config`.
    """

    def __init__(
        self,
        folder: Path,
        fork_server: ForkServer,
        knowledge: Path,
        steps: int,
        every: int,
        **changes: object,
    ):
        self.folder, self.steps, self.every, self._zygote = folder, steps, every, fork_server
        self.run = RunDir(folder / "run")
        self.mode, self.bound = changes.get("refresh__mode", "sync"), 2 * every
        self.lives: list[Command] = []
        sizes = {
            "model__layers": 1,
            "stages__realm__steps": steps,
            "refresh__every": every,
            "refresh__most_stale": self.bound,
            "checkpoint__every": every,
            "report__every": every,
            "refresh__wait_seconds": 600.0,  # several cases run at a time
        }
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "config.py"
        text = _CONFIG.format(knowledge=str(knowledge), changes={**sizes, **changes})
        self._config.write_text(text)

    def start(self, verb: str = "run", *arguments: str, **added: str) -> Command:
        """One more life of the run; `added` goes into its environment."""
        folder = self.folder / f"life_{len(self.lives)}"
        folder.mkdir()
        given = [f"--workdir={self.run.workdir}", *arguments]
        given += [] if verb == "index" else [f"--config={self._config}"]
        self.lives.append(Command(folder, self._zygote, verb, *given, added=added))
        return self.lives[-1]

    def kill(self) -> None:
        """Leaves no process of any life."""
        for pid in [builder_of(self.run), *(life.process.pid for life in self.lives)]:
            if pid is not None and state_of(pid) not in ("", "Z"):
                os.kill(pid, signal.SIGKILL)
        for life in self.lives:
            life.process.wait(60.0)

    def finish(self, seconds: float = 600.0) -> None:
        """The same command, once more, ends the run; then nothing that was promised is missing."""
        before = swaps_of(self.run)
        self.start().wait(0, seconds)
        assert swaps_of(self.run)[: len(before)] == before
        self.assert_whole()

    def assert_whole(self) -> None:
        """Of a finished run: every byte, every swap, the last checkpoint, the export, the end."""
        report = check(self.run.root)
        assert report["ok"], report["problems"]
        assert_history(self.run, self.steps, self.every - 1 if self.mode == "sync" else self.bound)
        if self.mode == "sync":
            assert swaps_of(self.run) == [(n, n) for n in range(0, self.steps, self.every)]
        assert commit.latest(self.run.checkpoints("realm")) == self.steps
        export = read_export(self.run)
        assert (export.step, export.index_step) == (self.steps, self.steps)
        assert self.run.end_marker.exists()


class TwoTrainers(TwoJobs):
    """The same with a trainer of two processes; one builder lives on beside all their lives."""

    def start(self, verb: str = "run", *arguments: str, **added: str) -> Command:
        """One more life of both trainers; `added` is for process 1, which is returned then."""
        if verb != "run":
            return super().start(verb, *arguments, **added)
        for life in self.lives[1:]:
            life.process.wait(60.0)  # process 0 ends soon after the other
        if not self.lives:
            super().start("index")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        given = (f"--coordinator=127.0.0.1:{port}", "--processes=2", *arguments)
        first = super().start("train", *given, "--process=0")
        second = super().start("train", *given, "--process=1", **added)
        return second if added else first

    def assert_whole(self) -> None:
        """Once all processes have ended."""
        for life in (self.lives[0], *self.lives[-2:]):
            life.wait(0)
        super().assert_whole()
