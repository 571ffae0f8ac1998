"""Both jobs under a random fault every ten seconds: `make soak SECONDS=1200`.

Trainer and builder are processes of their own, started again whenever they end, as a launcher
would. When the time is over the run is finished undisturbed, and what the tests of `tests/faults`
ask of a run is asked of this one: every byte, every swap, and the history of both jobs. Resident
memory and disk are sampled; the second half of the time may not need more than the first.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from support.fork_server import ForkServer
from support.history import assert_history
from support.processes import Command, environment, state_of
from support.tiny_corpus import write_tiny_corpus
from support.two_jobs import TwoJobs

from realm_jax.storage import commit
from realm_jax.storage.failpoints import VARIABLE
from realm_jax.storage.logs import read_log

FAULT_SECONDS, SAMPLE_SECONDS = 10.0, 0.5
ENDLESS, EVERY = 10_000_000, 20
STOPPED_SECONDS = 4.0
PAGE = os.sysconf("SC_PAGE_SIZE")


class Soak:
    """The two jobs, what is done to them, and what was seen of them."""

    def __init__(self, folder: Path, seed: int):
        land = write_tiny_corpus(folder)
        self.fork_server = ForkServer(environment(folder / "compiled"))
        settings = {"refresh__mode": "async", "builder__recall_floor": 0.9}
        self.jobs = TwoJobs(
            folder / "soak", self.fork_server, land.folder, ENDLESS, EVERY, **settings
        )
        self.draw = random.Random(seed)
        self.alive: dict[str, Command] = {}
        self.lives: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()
        self.samples: list[dict[str, float]] = []

    def keep_alive(self) -> None:
        """Starts what has ended; one start in three meets a full or broken disk somewhere."""
        for verb, flags in (("train", []), ("index", ["--poll=0.05"])):
            if verb in self.alive and self.alive[verb].process.poll() is None:
                continue
            added = {}
            if self.lives[verb] and self.draw.random() < 1 / 3:
                action = self.draw.choice(["full", "short", "error", "kill"])
                added[VARIABLE] = f"file:{self.draw.randint(1, 150)}={action}"
                self.faults[f"file={action}"] += 1
            self.alive[verb] = self.jobs.start(verb, *flags, **added)
            self.lives[verb] += 1

    def fault(self) -> None:
        """One of eight things, to one job or to both."""
        victims = self.draw.choice([["train"], ["index"], ["train", "index"]])
        name = self.draw.choice(["SIGKILL", "SIGTERM", "SIGSTOP"])
        self.faults[f"{name} {'+'.join(victims)}"] += 1
        for victim in victims:
            self.signal(victim, getattr(signal, name))
        if name == "SIGSTOP":
            self.watch(STOPPED_SECONDS, restart=False)
            for victim in victims:
                self.signal(victim, signal.SIGCONT)

    def signal(self, verb: str, number: int) -> None:
        """To a job that is alive."""
        self.alive[verb].process.send_signal(number)

    def watch(self, seconds: float, *, restart: bool = True) -> None:
        """Samples for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if restart:
                self.keep_alive()
            self.samples.append(self.sample())
            time.sleep(SAMPLE_SECONDS)

    def sample(self) -> dict[str, float]:
        """Bytes: resident of each job that is alive, and of the run folder."""
        found = {"disk": float(_disk(Path(self.jobs.run.workdir)))}
        for verb, command in self.alive.items():
            if state_of(command.process.pid) not in ("", "Z"):
                found[verb] = float(_resident(command.process.pid))
        return found

    def finish(self) -> None:
        """The run gets an end a little further on, and is played to it undisturbed."""
        self.jobs.kill()
        newest = commit.latest(self.jobs.run.checkpoints("realm")) or 0
        self.jobs.steps = newest + EVERY
        self.jobs.start("run", f"--config.stages.realm.steps={self.jobs.steps}").wait(0)
        self.jobs.assert_whole()


def _disk(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):  # walks on where retention deletes
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_blocks * 512
    return total


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _halves(samples: list[dict[str, float]], name: str) -> dict[str, float]:
    """Largest value in the first and in the second half, and the median of all, in MiB."""
    values = [sample[name] / 2**20 for sample in samples if sample.get(name)]
    middle = len(values) // 2
    return {
        "most_first_half": round(max(values[:middle]), 1),
        "most_second_half": round(max(values[middle:]), 1),
        "median": round(statistics.median(values), 1),
    }


def soak(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Plays, finishes, proves; returns the summary."""
    one = Soak(folder, seed)
    began = time.monotonic()
    try:
        one.watch(FAULT_SECONDS)
        while time.monotonic() - began < seconds:
            one.fault()
            one.watch(FAULT_SECONDS)
        one.finish()
    finally:
        one.jobs.kill()
        one.fork_server.close()
    swaps = read_log(one.jobs.run.swaps)
    last = [record["step"] - 1 for record in swaps[1:]] + [one.jobs.steps - 1]
    stale = [step - swap["index_step"] for step, swap in zip(last, swaps, strict=True)]
    return {
        "command": f"make soak SECONDS={seconds:.0f} SEED={seed}",
        "faults": dict(sorted(one.faults.items())),
        "faults_in_all": one.faults.total(),
        "lives": dict(one.lives),
        "steps": one.jobs.steps,
        "swaps_proved": assert_history(one.jobs.run, one.jobs.steps, one.jobs.bound),
        "staleness_most_steps": max(stale),
        "memory_mib": {verb: _halves(one.samples, verb) for verb in ("train", "index")},
        "disk_mib": _halves(one.samples, "disk"),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "lost": 0,
    }


def main() -> None:
    """Prints the summary, and writes it where --out says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        summary = soak(Path(folder), given.seconds, given.seed)
    text = json.dumps(summary, indent=1) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text)
    memory = [*summary["memory_mib"].values(), summary["disk_mib"]]
    for figures in memory:
        most = 1.1 * figures["most_first_half"] + 16.0
        assert figures["most_second_half"] <= most, f"grows: {figures}"


if __name__ == "__main__":
    main()
