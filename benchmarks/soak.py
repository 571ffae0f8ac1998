"""Runs both jobs under a random fault every ten seconds: `make soak SECONDS=1200`.

Command:  python benchmarks/soak.py [--seconds=1200] [--seed=0] [--out=FILE]
Data:     a tiny synthetic corpus, which is written
Output:   numbers of faults and restarts, staleness, memory and disk; exit code 1 if a check fails
Time:     --seconds and about a minute

Trainer and builder are separate processes. Each is restarted when it ends, as a launcher would do.
When the time is over, the run is finished without faults. It must then pass the same checks as the
runs of `tests/faults`: checksums, swap log and the history of both jobs. Memory and disk use in the
second half of the time may not exceed that of the first half by more than 10 % and 16 MiB.
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

import tests_path  # noqa: F401 - before `support`
from support.fork_server import ForkServer
from support.history import assert_history
from support.processes import RealmProcess, environment, process_state
from support.tiny_corpus import write_tiny_corpus
from support.two_jobs import TwoJobs

from realm_jax.storage import commit
from realm_jax.storage.failpoints import VARIABLE
from realm_jax.storage.logs import read_log

FAULT_SECONDS, SAMPLE_SECONDS = 10.0, 0.5
ENDLESS, EVERY = 10_000_000, 20  # steps of the run; steps between snapshots
STOPPED_SECONDS = 4.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Soak:
    """The two jobs, the faults injected into them, and samples of their memory and disk use."""

    def __init__(self, folder: Path, seed: int):
        corpus = write_tiny_corpus(folder)
        self.fork_server = ForkServer(environment(folder / "compiled"))
        settings = {"refresh__mode": "async", "builder__recall_floor": 0.9}
        self.jobs = TwoJobs(
            folder / "soak", self.fork_server, corpus.folder, ENDLESS, EVERY, **settings
        )
        self.draw = random.Random(seed)
        self.running: dict[str, RealmProcess] = {}
        self.starts: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()
        self.samples: list[dict[str, float]] = []

    def restart_ended(self) -> None:
        """Restarts each job that has ended; one start in three gets a storage fault."""
        for verb, flags in (("train", []), ("index", ["--poll=0.05"])):
            if verb in self.running and self.running[verb].process.poll() is None:
                continue
            added = {}
            if self.starts[verb] and self.draw.random() < 1 / 3:
                action = self.draw.choice(["full", "short", "error", "kill"])
                added[VARIABLE] = f"file:{self.draw.randint(1, 150)}={action}"
                self.faults[f"file={action}"] += 1
            self.running[verb] = self.jobs.start(verb, *flags, **added)
            self.starts[verb] += 1

    def inject_fault(self) -> None:
        """Sends a random signal to one job or to both."""
        targets = self.draw.choice([["train"], ["index"], ["train", "index"]])
        name = self.draw.choice(["SIGKILL", "SIGTERM", "SIGSTOP"])
        self.faults[f"{name} {'+'.join(targets)}"] += 1
        for target in targets:
            self.signal(target, getattr(signal, name))
        if name == "SIGSTOP":
            self.watch(STOPPED_SECONDS, restart=False)
            for target in targets:
                self.signal(target, signal.SIGCONT)

    def signal(self, verb: str, number: int) -> None:
        """Sends a signal to a job; does nothing if it has ended."""
        self.running[verb].process.send_signal(number)

    def watch(self, seconds: float, *, restart: bool = True) -> None:
        """Samples memory and disk use for `seconds`; restarts ended jobs if `restart`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if restart:
                self.restart_ended()
            self.samples.append(self.sample())
            time.sleep(SAMPLE_SECONDS)

    def sample(self) -> dict[str, float]:
        """Returns the bytes of the run folder and the resident bytes of each running job."""
        found = {"disk": float(_disk_bytes(Path(self.jobs.run.workdir)))}
        for verb, job in self.running.items():
            if process_state(job.process.pid) not in ("", "Z"):
                found[verb] = float(_resident_bytes(job.process.pid))
        return found

    def finish(self) -> None:
        """Lowers the number of steps to a few more than done, and finishes without faults."""
        self.jobs.kill()
        newest = commit.latest(self.jobs.run.checkpoints("realm")) or 0
        self.jobs.steps = newest + EVERY
        self.jobs.start("run", f"--config.stages.realm.steps={self.jobs.steps}").wait(0)
        self.jobs.assert_complete()


def _disk_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # retention may delete meanwhile
                total += (Path(parent) / name).stat().st_blocks * 512
    return total


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _halves(samples: list[dict[str, float]], name: str) -> dict[str, float]:
    """Returns the maximum of the first and of the second half, and the overall median, in MiB."""
    values = [sample[name] / 2**20 for sample in samples if sample.get(name)]
    middle = len(values) // 2
    return {
        "max_first_half": round(max(values[:middle]), 1),
        "max_second_half": round(max(values[middle:]), 1),
        "median": round(statistics.median(values), 1),
    }


def soak(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Injects faults for `seconds`, finishes the run, checks it, and returns the report."""
    one = Soak(folder, seed)
    began = time.monotonic()
    try:
        one.watch(FAULT_SECONDS)
        while time.monotonic() - began < seconds:
            one.inject_fault()
            one.watch(FAULT_SECONDS)
        one.finish()
    finally:
        one.jobs.kill()
        one.fork_server.close()
    swaps = read_log(one.jobs.run.swaps)
    last_steps = [record["step"] - 1 for record in swaps[1:]] + [one.jobs.steps - 1]
    stale = [step - swap["index_step"] for step, swap in zip(last_steps, swaps, strict=True)]
    return {
        "command": f"make soak SECONDS={seconds:.0f} SEED={seed}",
        "faults": dict(sorted(one.faults.items())),
        "faults_total": one.faults.total(),
        "starts": dict(one.starts),
        "steps": one.jobs.steps,
        "swaps_checked": assert_history(one.jobs.run, one.jobs.steps, one.jobs.bound),
        "max_staleness_steps": max(stale),
        "memory_mib": {verb: _halves(one.samples, verb) for verb in ("train", "index")},
        "disk_mib": _halves(one.samples, "disk"),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "failed_checks": 0,
    }


def main() -> None:
    """Prints the report and writes it to --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), arguments.seconds, arguments.seed)
    text = json.dumps(report, indent=1) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)
    for usage in [*report["memory_mib"].values(), report["disk_mib"]]:
        limit = 1.1 * usage["max_first_half"] + 16.0
        assert usage["max_second_half"] <= limit, f"grows: {usage}"


if __name__ == "__main__":
    main()
