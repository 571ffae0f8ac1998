"""`realm index`: the index-builder job."""

import argparse
import contextlib
import os
import threading
from typing import Any

from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.arguments import file_name, seconds
from realm_jax.cli.jobs import add_job_arguments, until_stopped

EXAMPLE = "realm index --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb; shapes and corpus come from each snapshot's config."""
    add_job_arguments(parser, config=False)
    parser.add_argument(
        "--poll", type=seconds, default=0.5, help="seconds between checks for a new snapshot"
    )
    parser.add_argument(
        "--worker", type=file_name, default="", help="name of this builder, if several share a run"
    )
    parser.add_argument("--beside-trainer", action="store_true", help=argparse.SUPPRESS)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds an index for each snapshot until the run ends or a stop signal arrives."""
    stop = runtime.start(devices=arguments.devices, mostly_idle=True)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run_index

        return dry_run_index(arguments)
    if arguments.beside_trainer:
        threading.Thread(target=_stop_with_trainer, args=(stop,), daemon=True).start()
    from realm_jax.index_builder.run import run

    def build() -> dict[str, Any]:
        published = run(arguments.workdir, arguments.poll, stop, arguments.worker)
        return {"published": published, "exit_code": exit_codes.STOPPED if stop.is_set() else 0}

    return until_stopped(build)


def _stop_with_trainer(stop: threading.Event) -> None:
    """Stops when standard input closes: `realm run` holds it open until that process ends."""
    with contextlib.suppress(OSError):
        os.read(0, 1)  # not sys.stdin, whose lock would block the interpreter's exit
    stop.set()
