r"""Both jobs on this machine: one or more trainer processes and any number of index builders.

Command:  python launch/local.py --config=experiments/wiki_sample.py --workdir=runs/wiki
          python launch/local.py --processes=2 --devices=4 --builders=1 \
              --config=experiments/wiki_sample.py --workdir=runs/many

With one process of each, this is `realm run`. With more, each trainer process plays one host of a
pod. If a process fails, all are stopped. Exit code 75 means stopped, progress saved: run the same
command to resume. --dry_run prints the commands.
"""

import argparse
import shlex
import socket
import subprocess
import sys
import time

from realm_jax import runtime
from realm_jax.cli.arguments import natural, positive
from realm_jax.cli.exit_codes import DONE, ERROR, STOPPED
from realm_jax.cli.launching import check_overrides, index_command, last_step, train_command
from realm_jax.cli.main import main as realm
from realm_jax.cli.scripts import script_parser, stop_signal
from realm_jax.errors import RealmError

_STOP_TIMEOUT = 60.0  # seconds between SIGTERM and SIGKILL


def parse(argv: list[str]) -> argparse.Namespace:
    """Parses and checks the flags.

    Raises:
      RealmError: an argument that is neither a flag nor a config override.
    """
    parser = script_parser(__doc__)
    parser.add_argument("--workdir", required=True, help="run folder; an existing run is resumed")
    parser.add_argument("--config", required=True, help="recipe name or Python file")
    parser.add_argument("--processes", type=positive, default=1, help="number of trainer processes")
    parser.add_argument(
        "--builders", type=natural, default=1, help="number of index-builder processes"
    )
    parser.add_argument(
        "--devices", type=positive, default=0, help="virtual CPU devices per process"
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="print the commands without running them"
    )
    found, extra = parser.parse_known_args(argv)
    found.extra = check_overrides(extra)
    found.last_step = last_step(found.config, found.extra)
    return found


def commands(options: argparse.Namespace, port: int) -> list[list[str]]:
    """The command of each process; those of the trainer first."""
    devices = [f"--devices={options.devices}"] if options.devices else []
    common = (options.workdir, options.config, [*options.extra, *devices])
    if options.processes == 1 and options.builders == 1:
        return [["realm", "run", *train_command(*common)[2:]]]
    many = [
        (f"localhost:{port}", options.processes, str(number)) for number in range(options.processes)
    ]
    trainers = [train_command(*common, one if options.processes > 1 else None) for one in many]
    count = options.builders
    last = options.last_step
    builders = [index_command(options.workdir, i, count, last) + devices for i in range(count)]
    return trainers + builders


def run(wanted: list[list[str]]) -> int:
    """Runs the commands in parallel; returns the exit code of the first that failed.

    If none failed, `STOPPED` after a signal, else `DONE`.
    """
    failed: list[int] = []  # exit codes of the processes that failed first
    with stop_signal() as stop:
        running = [subprocess.Popen(runtime.realm_command(*command[1:])) for command in wanted]
        while not (failed or stop.is_set()) and any(one.poll() is None for one in running):
            time.sleep(0.2)
            failed += [process.returncode for process in running if process.poll()]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    codes = failed + [process.returncode for process in running]
    stopped = STOPPED if stop.is_set() or any(codes) else DONE
    # A process that a signal to stop ended before it handled the signal has lost nothing.
    without_fault = (DONE, STOPPED, *(-name for name in runtime.STOP_SIGNALS))
    first = next((code for code in codes if code not in without_fault), stopped)
    return first if first >= 0 else ERROR  # below 0: killed by a signal


def main(argv: list[str]) -> int:
    """Prints or runs the commands; returns the exit code."""
    try:
        options = parse(argv)
    except RealmError as error:
        sys.stderr.write(f"local: {error}\n")
        return 1
    with socket.socket() as free:
        free.bind(("localhost", 0))
        wanted = commands(options, free.getsockname()[1])
    if options.dry_run:
        sys.stdout.write("".join(f"{shlex.join(command)}\n" for command in wanted))
        return DONE
    return realm(wanted[0][1:]) if len(wanted) == 1 else run(wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
