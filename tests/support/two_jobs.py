"""A small run of trainer and index builder that tests interrupt, and checks on its end state."""

import os
import signal
import socket
from pathlib import Path

from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.verify import check
from realm_jax.corpus.store import PassageStore
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from support.fork_server import ForkServer
from support.history import assert_history
from support.processes import RealmProcess, builder_pid, logged_swaps, process_state

_CONFIG = """
from support.tiny_corpus import tiny_config


def get_config():
    return tiny_config({knowledge!r}, **{changes!r})
"""


class TwoJobs:
    """One run folder, and the `realm` processes started on it until the run is finished.

    Args:
      folder: a new folder for config, run and process output.
      fork_server: forks the processes.
      knowledge: folder of the tiny corpus.
      steps: steps of the REALM stage, the only stage.
      every: steps between snapshots, and between checkpoints.
      changes: config changes, as for `tiny_config`.
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
        self.folder, self.steps, self.every, self._fork_server = folder, steps, every, fork_server
        self.knowledge = knowledge
        self.run = RunDir(folder / "run")
        self.mode, self.bound = changes.get("refresh__mode", "sync"), 2 * every
        self.processes: list[RealmProcess] = []
        sizes = {
            "model__layers": 1,
            "stages__realm__steps": steps,
            "refresh__every": every,
            "refresh__max_staleness": self.bound,
            "checkpoint__every": every,
            "report__every": every,
            "refresh__wait_seconds": 600.0,  # several runs share the machine
        }
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "config.py"
        text = _CONFIG.format(knowledge=str(knowledge), changes={**sizes, **changes})
        self._config.write_text(text)

    def start(self, verb: str = "run", *arguments: str, **added: str) -> RealmProcess:
        """Starts `realm VERB` on the run folder; `added` are environment variables."""
        folder = self.folder / f"process_{len(self.processes)}"
        folder.mkdir()
        flags = [f"--workdir={self.run.workdir}", *arguments]
        flags += [] if verb == "index" else [f"--config={self._config}"]
        self.processes.append(RealmProcess(folder, self._fork_server, verb, *flags, added=added))
        return self.processes[-1]

    def kill(self) -> None:
        """Kills every process of the run that is still alive."""
        for pid in [builder_pid(self.run), *(one.process.pid for one in self.processes)]:
            if pid is not None and process_state(pid) not in ("", "Z"):
                os.kill(pid, signal.SIGKILL)
        for one in self.processes:
            one.process.wait(60.0)

    def finish(self, seconds: float = 600.0) -> None:
        """Runs the same command again to the end of the run, and checks the end state."""
        before = logged_swaps(self.run)
        self.start().wait(0, seconds)
        assert logged_swaps(self.run)[: len(before)] == before
        self.assert_complete()

    def assert_complete(self) -> None:
        """Checks checksums, swap log, last checkpoint, export and end marker of a finished run."""
        report = check(self.run.root)
        assert report["ok"], report["problems"]
        bound = self.every - 1 if self.mode == "sync" else self.bound
        assert_history(self.run, self.steps, bound, PassageStore.open(self.knowledge).lineage)
        if self.mode == "sync":
            assert logged_swaps(self.run) == [(n, n) for n in range(0, self.steps, self.every)]
        assert commit.latest(self.run.checkpoints("realm")) == self.steps
        export = read_export(self.run)
        assert (export.step, export.index_step) == (self.steps, self.steps)
        assert self.run.end_marker.exists()


class TwoTrainers(TwoJobs):
    """As TwoJobs, with a trainer of two processes; one index builder outlives their restarts."""

    def start(self, verb: str = "run", *arguments: str, **added: str) -> RealmProcess:
        """Starts both trainer processes; `added` are environment variables of process 1.

        Returns:
          Process 1 if it has additional environment variables, otherwise process 0.
        """
        if verb != "run":
            return super().start(verb, *arguments, **added)
        for one in self.processes[1:]:
            one.process.wait(60.0)  # process 0 ends soon after process 1
        if not self.processes:
            super().start("index")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        flags = (f"--coordinator=127.0.0.1:{port}", "--processes=2", *arguments)
        first = super().start("train", *flags, "--process=0")
        second = super().start("train", *flags, "--process=1", **added)
        return second if added else first

    def assert_complete(self) -> None:
        """Waits for the builder and both trainers, then checks the end state."""
        for one in (self.processes[0], *self.processes[-2:]):
            one.wait(0)
        super().assert_complete()
