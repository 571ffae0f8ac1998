"""Rehearses the paper's run on 64 devices: its batch, lengths and candidates, with tiny networks.

Command:  make rehearsal, or python benchmarks/rehearsal.py [--folder=FOLDER]
Data:     a synthetic corpus, which is written
Output:   progress; last the numbers of programs, swaps, evaluations and lost steps, and the largest
          resident memory of a process. Exit code 1 if a check fails
Time:     about 16 minutes on two cores, and up to 20 GB of memory

Eight trainer processes with eight virtual devices each and one index builder run the recipe
`realm_wikipedia`, without dropout, through 20 steps of ICT and 20 of REALM, with evaluations,
checkpoints, snapshots and swaps. After the first REALM evaluation one trainer process and the
builder are killed; the same commands are started again and finish the run. Every program that a
process called must be one that `realm compile --step=all` compiles.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from realm_jax import config as config_lib
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.planning.programs import ENTRIES, names
from realm_jax.storage.layout import RunDir
from realm_jax.storage.logs import read_log
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

PROCESSES, DEVICES, STEPS, EVERY = 8, 8, 20, 10
PASSAGES, SENTENCES = 600, 16
JOB = Path(__file__).with_name("rehearsal_job.py")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789."
_WORDS = ("river", "city", "king", "north", "old", "great", "first", "lake", "land", "people")
_NAMES = ("Ora", "Ube", "Ilo", "Aru", "Eta", "Osk", "Ani", "Ulm", "Ibo", "Ero", "Ats", "Oni")
OVERRIDES = {
    "model.start": "",
    "model.layers": 1,
    "model.hidden": 16,
    "model.heads": 1,
    "model.mlp": 32,
    "model.embedding": 16,
    "stages.ict.steps": STEPS,
    "stages.ict.batch": 512,
    "stages.ict.evaluate_every": EVERY,
    "stages.realm.steps": STEPS,
    "stages.realm.evaluate_every": EVERY,
    "model.dropout": 0.0,  # its random numbers need 140 MB a device: 64 devices share a machine
    "checkpoint.every": EVERY,
    "refresh.every": EVERY // 2,
    "report.every": 1,
    "report.writers": "",
}


def main() -> int:
    """Runs the rehearsal; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep the run in this new folder")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        return rehearse(arguments.folder)
    with tempfile.TemporaryDirectory() as folder:
        return rehearse(Path(folder))


def rehearse(folder: Path) -> int:
    """Trains, kills, resumes and checks; returns the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    rehearsal = Rehearsal(folder, write_corpus(folder))
    rehearsal.start()
    rehearsal.wait(lambda: ("realm", EVERY) in rehearsal.evaluations(), "REALM was evaluated")
    rehearsal.kill()
    rehearsal.start()
    rehearsal.wait(rehearsal.finished, "the end of the run")
    return rehearsal.report()


def write_corpus(folder: Path) -> dict[str, Any]:
    """Writes passages that fill the paper's 288 word pieces; returns config overrides."""
    draw = random.Random(0)
    pieces = [*SPECIAL, *_LETTERS, *(f"##{c}" for c in _LETTERS), *_WORDS]
    write_vocabulary(folder / "vocab.txt", pieces)

    def sentence() -> str:
        words = " ".join(draw.choices(_WORDS, k=10))
        return f"The {words} of {draw.choice(_NAMES)} in {draw.randint(1500, 1999)}."

    texts = [(draw.choice(_NAMES), [sentence() for _ in range(SENTENCES)]) for _ in range(PASSAGES)]
    write_passages(folder / "corpus", texts, folder / "vocab.txt")
    mark_spans(PassageStore.open(folder / "corpus"))
    return {"corpus.knowledge": folder / "corpus", "corpus.spans": ""}


class Rehearsal:
    """The processes of both jobs.

    Args:
      folder: for the run, and the output of each process.
      corpus: config overrides.
    """

    def __init__(self, folder: Path, corpus: dict[str, Any]):
        self._folder, self.run = folder, RunDir(folder / "run")
        self._overrides = {**OVERRIDES, **corpus}
        self._trainers: list[subprocess.Popen[bytes]] = []
        self._builder: subprocess.Popen[bytes] | None = None
        self._began, self._starts = time.monotonic(), 0

    def start(self) -> None:
        """Starts the builder and all trainer processes."""
        self._starts += 1
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            coordinator = f"127.0.0.1:{free.getsockname()[1]}"
        common = [f"--workdir={self.run.workdir}", f"--devices={DEVICES}"]
        self._builder = self._process("builder", ["index", *common])
        config = [f"--config.{key}={value}" for key, value in self._overrides.items()]
        many = [f"--coordinator={coordinator}", f"--processes={PROCESSES}"]
        train = ["train", *common, "--config=realm_wikipedia", *config, *many]
        self._trainers = [
            self._process(f"trainer_{number}", [*train, f"--process={number}"])
            for number in range(PROCESSES)
        ]
        self._say(f"started {PROCESSES} trainer processes and the index builder")

    def _process(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        stem = self._folder / f"{name}_{self._starts}"
        with stem.with_suffix(".log").open("w") as output:
            return subprocess.Popen(
                [sys.executable, str(JOB), str(stem.with_suffix(".json")), *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(self._folder / "compiled")},
            )

    def wait(self, holds: Any, what: str) -> None:
        """Waits until `holds()`; ends all processes and raises if one of them fails."""
        told = time.monotonic()
        while not holds():
            time.sleep(1.0)
            failed = [_name(one) for one in self._processes() if one.poll()]
            if failed:
                self._end()
                raise SystemExit(f"failed before {what}: {failed}; see {self._folder}/*.log")
            if time.monotonic() - told > 60:
                told = time.monotonic()
                self._say(f"ICT step {self.steps('ict')}, REALM step {self.steps('realm')}")
        self._say(what)

    def kill(self) -> None:
        """Kills one trainer process and the builder, and waits until the others have ended."""
        assert self._builder is not None
        for one in (self._trainers[3], self._builder):
            one.send_signal(signal.SIGKILL)
        for one in self._processes():
            one.wait(300)
        self._say("killed trainer process 3 and the builder; the others have ended")

    def finished(self) -> bool:
        """Whether all processes have ended without an error."""
        return all(one.poll() == 0 for one in self._processes())

    def evaluations(self) -> set[tuple[str, int]]:
        """Stage and step of each evaluation in the logs."""
        return {
            (stage, one["step"])
            for stage in ("ict", "realm")
            for one in read_log(self.run.logs / f"{stage}.jsonl")
            if one.keys() & {"evaluation_loss", "held_out_loss"}
        }

    def steps(self, stage: str) -> int:
        """The newest step in the log."""
        return max((one["step"] for one in read_log(self.run.logs / f"{stage}.jsonl")), default=0)

    def report(self) -> int:
        """Checks the end state and prints the result; returns the exit code."""
        logs = {stage: read_log(self.run.logs / f"{stage}.jsonl") for stage in ("ict", "realm")}
        lost = sum(
            len(set(range(1, STEPS)) - {one["step"] for one in log if "loss" in one})
            for log in logs.values()
        )
        swaps = len({one["index_step"] for one in read_log(self.run.swaps)}) - 1
        ended = [json.loads(path.read_text()) for path in self._folder.glob("*_*.json")]
        called = {name for one in ended for name in one["programs"]}
        unknown = called - self._compiled()
        memory = max(one["resident_bytes"] for one in ended)
        if unknown:
            sys.stdout.write(f"not compiled by `realm compile --step=all`: {sorted(unknown)}\n")
        evaluations = self.evaluations()
        passed = not unknown and not lost and swaps >= 2 and len(evaluations) >= 4
        sys.stdout.write(
            f"largest resident memory of a process: {memory / 2**20:,.0f} MiB\n"
            f"rehearsal: {len(called)} programs, {swaps} swaps, {len(evaluations)} evaluations, "
            f"lost: {lost}\n"
        )
        return 0 if passed else 1

    def _compiled(self) -> set[str]:
        """Names in the source code of the programs that `realm compile --step=all` compiles."""
        config = config_lib.load("realm_wikipedia", {k: str(v) for k, v in OVERRIDES.items()})
        return {ENTRIES[name].program or name for name in names(config)}

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [*self._trainers, *([self._builder] if self._builder is not None else [])]

    def _end(self) -> None:
        for one in self._processes():
            one.kill()

    def _say(self, what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.0f} s  {what}\n")
        sys.stdout.flush()


def _name(process: subprocess.Popen[bytes]) -> str:
    """The log of a process and how it ended."""
    assert isinstance(process.args, list)
    return f"{Path(process.args[2]).stem}: exit code {process.returncode}"


if __name__ == "__main__":
    sys.exit(main())
