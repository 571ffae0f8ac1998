"""Start-up time of commands, with an empty and with a filled compilation cache.

Command:  python benchmarks/startup.py [--quick] [--json]
Data:     a tiny synthetic corpus and a finished run with random weights, which are written
Output:   median seconds of a new process: `import realm_jax`, `realm --help`, the first question of
          `realm ask`, and one step of `realm train`; the last two with an empty compilation cache
          ("compiling") and with the cache that this run fills ("compiled")
Time:     two minutes on two cores; --quick (one round instead of five) half a minute
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tests_path  # noqa: F401 - before `support`
from command_line import make_parser, write_report
from support import tiny_corpus
from support.finished_run import write_finished_run

from realm_jax import config as config_lib

REALM = ("-m", "realm_jax.cli.main")


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else 5
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), rounds)
    if arguments.json:
        write_report(report, arguments)
        return
    for name, seconds in report.items():
        sys.stdout.write(f"{name:22} {seconds:6.2f}\n")


def measure(folder: Path, rounds: int) -> dict[str, float]:
    """Returns the median seconds of each command."""
    corpus = tiny_corpus.write_tiny_corpus(folder)
    config = tiny_corpus.tiny_config(corpus.folder)
    write_finished_run(folder / "finished", corpus, config)
    config = tiny_corpus.tiny_config(corpus.folder, stages__ict__steps=1)

    def ask(_: int) -> tuple[str, ...]:
        return (*REALM, "ask", f"--workdir={folder / 'finished'}", corpus.questions[0].text)

    def train(number: int) -> tuple[str, ...]:
        workdir = folder / f"trained_{number}"
        shutil.rmtree(workdir, ignore_errors=True)
        workdir.mkdir()
        (workdir / "config.json").write_text(config_lib.to_json(config))
        return (*REALM, "train", f"--workdir={workdir}")

    spent: dict[str, list[float]] = {}
    for number in range(rounds):
        cache = folder / f"compiled_{number}"
        for name, command in _commands(ask, train).items():
            spent.setdefault(name, []).append(_seconds(command(number), cache))
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def _commands(
    ask: Callable[[int], tuple[str, ...]], train: Callable[[int], tuple[str, ...]]
) -> dict[str, Callable[[int], tuple[str, ...]]]:
    return {
        "python only": lambda _: ("-c", "pass"),
        "import realm_jax": lambda _: ("-c", "import realm_jax"),
        "realm --help": lambda _: (*REALM, "--help"),
        "ask, compiling": ask,
        "ask, compiled": ask,
        "one step, compiling": train,
        "one step, compiled": train,
    }


def _seconds(arguments: tuple[str, ...], cache: Path) -> float:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.monotonic()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
