"""Flags of a job of several processes: --coordinator, --processes and --process."""

import argparse

from realm_jax.cli.arguments import natural, positive
from realm_jax.errors import UsageError


def add_process_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the flags; `what` names the processes, such as trainer."""
    parser.add_argument("--coordinator", help="HOST:PORT of process 0; auto: detected on Cloud TPU")
    parser.add_argument(
        "--processes",
        type=positive,
        default=1,
        help=f"number of {what} processes on all hosts; default: %(default)s",
    )
    parser.add_argument("--process", type=natural, default=0, help="number of this process, from 0")


def check_processes(arguments: argparse.Namespace) -> None:
    """Checks that the flags belong together.

    Raises:
      UsageError: several processes without a coordinator, or process numbers with auto.
    """
    numbered = arguments.processes > 1 or arguments.process > 0
    if numbered and not arguments.coordinator:
        raise UsageError(
            "--processes and --process need a coordinator",
            where="--coordinator",
            expected="HOST:PORT of process 0, with --processes and --process; auto on Cloud TPU",
            fix="add it, or leave out --processes and --process to run one process",
        )
    if numbered and arguments.coordinator == "auto":
        raise UsageError(
            "--coordinator=auto reads the process numbers from Cloud TPU",
            where="--processes, --process",
            expected="neither of them with --coordinator=auto",
            found=f"--processes={arguments.processes} --process={arguments.process}",
            fix="leave them out, or use --coordinator=HOST:PORT",
        )


def join_processes(arguments: argparse.Namespace) -> None:
    """Connects this process to the others of its job, if there is a coordinator."""
    from realm_jax.parallel import hosts

    if arguments.coordinator:
        hosts.join(arguments.coordinator, arguments.processes, arguments.process)
