"""How long one waits before anything happens, and what kept programs spare.

Command:  python benchmarks/startup.py [--quick] [--json]
Output:   seconds by the clock, each of a process of its own: `import` of realm_jax, `realm --help`,
          and two starts that compile, the first question of `realm ask` and one step of `realm
          train`, each in an empty folder of compiled programs and then in what that left
Time:     two minutes on two cores; --quick (one round instead of five) half a minute
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support import tiny_corpus
from support.finished_run import write_finished_run

from realm_jax import config as config_lib

REALM = ("-m", "realm_jax.cli.main")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else 5
    with tempfile.TemporaryDirectory() as folder:
        report = measured(Path(folder), rounds)
    if arguments.json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    for name, seconds in report.items():
        sys.stdout.write(f"{name:22} {seconds:6.2f}\n")


def measured(folder: Path, rounds: int) -> dict[str, float]:
    """Medians over the rounds."""
    land = tiny_corpus.write_tiny_corpus(folder)
    write_finished_run(folder / "finished", land, tiny_corpus.tiny_config(land.folder))
    config = tiny_corpus.tiny_config(land.folder, stages__ict__steps=1)

    def asked(_: int) -> tuple[str, ...]:
        return (*REALM, "ask", f"--workdir={folder / 'finished'}", land.questions[0].text)

    def trained(number: int) -> tuple[str, ...]:
        workdir = folder / f"trained_{number}"
        shutil.rmtree(workdir, ignore_errors=True)
        workdir.mkdir()
        (workdir / "config.json").write_text(config_lib.to_json(config))
        return (*REALM, "train", f"--workdir={workdir}")

    taken: dict[str, list[float]] = {}
    for number in range(rounds):
        kept = folder / f"compiled_{number}"
        for name, command in _starts(asked, trained).items():
            taken.setdefault(name, []).append(_seconds(command(number), kept))
    return {name: statistics.median(values) for name, values in taken.items()}


def _starts(
    asked: Callable[[int], tuple[str, ...]], trained: Callable[[int], tuple[str, ...]]
) -> dict[str, Callable[[int], tuple[str, ...]]]:
    return {
        "python alone": lambda _: ("-c", "pass"),
        "import realm_jax": lambda _: ("-c", "import realm_jax"),
        "realm --help": lambda _: (*REALM, "--help"),
        "ask, compiling": asked,
        "ask, compiled": asked,
        "one step, compiling": trained,
        "one step, compiled": trained,
    }


def _seconds(arguments: tuple[str, ...], kept: Path) -> float:
    environment = {**os.environ, "XDG_CACHE_HOME": str(kept)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.monotonic()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
