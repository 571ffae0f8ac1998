"""`realm index`: the index-builder job."""

import argparse
import contextlib
import os
import sys
import threading
from typing import Any

from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.arguments import add_flag, natural, seconds
from realm_jax.cli.jobs import add_job_arguments, until_stopped
from realm_jax.cli.processes import add_process_arguments, check_processes, join_processes
from realm_jax.errors import RealmError, UsageError
from realm_jax.index_builder.worker import ONLY_WORKER, Worker, parse_worker

EXAMPLE = "realm index --workdir=runs/a"
_COUNTS = ("added", "replaced", "removed", "passages", "segments")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb; shapes and corpus come from each snapshot's config."""
    add_job_arguments(parser, config=False)
    parser.add_argument(
        "--poll",
        type=seconds,
        default=0.5,
        help="seconds between checks for a new snapshot; default: %(default)s",
    )
    parser.add_argument(
        "--worker", metavar="I/N", help="number of this builder, from 0, and number of builders"
    )
    parser.add_argument(
        "--last-step",
        type=natural,
        default=0,
        help="stages.realm.steps of a trainer that is started at the same time and may continue a "
        "finished run: an earlier end of the run does not end this job",
    )
    add_flag(
        parser, "--once", "bring the index of a finished run up to date with its corpus, and end"
    )
    add_process_arguments(parser, "builder")
    parser.add_argument("--beside-trainer", action="store_true", help=argparse.SUPPRESS)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds an index for each snapshot until the run ends or a stop signal arrives.

    Raises:
      UsageError: `--worker` is not i/n, or contradicts --coordinator or --once; see
        `check_processes`.
    """
    check_processes(arguments)
    worker = _worker(arguments)
    if arguments.once and (arguments.worker is not None or arguments.coordinator):
        raise UsageError(
            "--once is the work of one process",
            where="--once",
            expected="no --worker and no --coordinator",
            found=f"worker {arguments.worker}" if arguments.worker else "--coordinator",
            fix="leave out the other flag",
        )
    stop = runtime.start(devices=arguments.devices, mostly_idle=True)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run_index, dry_run_once

        return dry_run_once(arguments) if arguments.once else dry_run_index(arguments)
    if arguments.once:
        return _once(arguments, stop)
    if arguments.beside_trainer:
        threading.Thread(target=_stop_with_trainer, args=(stop,), daemon=True).start()
    join_processes(arguments)
    if arguments.coordinator:
        return _build_on_slice(arguments, stop)
    return _build(arguments, stop, worker)


def _worker(arguments: argparse.Namespace) -> Worker:
    """The worker of --worker; that of a slice follows from its process number."""
    if arguments.worker is not None and arguments.coordinator:
        raise UsageError(
            "--worker and --coordinator exclude each other",
            where="--worker, --coordinator",
            expected="--coordinator for the hosts of one slice, --worker=i/n for other machines",
            fix="leave out --worker: process p of n is worker p/n",
        )
    return ONLY_WORKER if arguments.worker is None else parse_worker(arguments.worker)


def _build(arguments: argparse.Namespace, stop: threading.Event, worker: Worker) -> dict[str, Any]:
    from realm_jax.index_builder.run import run

    def build() -> dict[str, Any]:
        published = run(
            arguments.workdir,
            arguments.poll,
            stop,
            worker,
            arguments.overrides,
            arguments.last_step,
        )
        return {"published": published, "exit_code": exit_codes.STOPPED if stop.is_set() else 0}

    return until_stopped(build)


def _once(arguments: argparse.Namespace, stop: threading.Event) -> dict[str, Any]:
    from realm_jax.index_builder.once import run_once

    def update() -> dict[str, Any]:
        report = run_once(arguments.workdir, stop, arguments.overrides)
        if not arguments.json:
            counts = ", ".join(f"{report[name]:,} {name}" for name in _COUNTS)
            sys.stdout.write(f"generation {report['generation']}: {counts}\n")
        return dict(report)

    return until_stopped(update)


class _StopSignalError(RealmError):
    """Ends the other processes of a slice: they would wait for the shards of this one."""


def _build_on_slice(arguments: argparse.Namespace, stop: threading.Event) -> dict[str, Any]:
    """Builds as one of the processes of a slice; each embeds on its own devices."""
    from realm_jax.parallel import hosts

    report: dict[str, Any] = {}
    with contextlib.suppress(_StopSignalError), hosts.membership():
        worker = Worker(hosts.process_index(), hosts.process_count())
        report = _build(arguments, stop, worker)
        if stop.is_set() and worker.count > 1:
            raise _StopSignalError("the index builder received a stop signal")
    return report


def _stop_with_trainer(stop: threading.Event) -> None:
    """Stops when standard input closes: `realm run` holds it open until that process ends."""
    with contextlib.suppress(OSError):
        os.read(0, 1)  # not sys.stdin, whose lock would block the interpreter's exit
    stop.set()
