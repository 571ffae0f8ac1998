"""`realm index`: the index-builder job."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments

HELP = "the index-builder job: follows snapshots, publishes fresh indexes until the run ends"
EXAMPLE = "realm index --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb; shapes and corpus come from each snapshot's config."""
    add_job_arguments(parser, config=False)
    parser.add_argument("--poll", type=float, default=0.5, help="seconds between two looks")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds until the end marker or a stop signal."""
    stop = runtime.start(devices=arguments.devices)
    from realm_jax.index_builder.run import run

    published = run(arguments.workdir, arguments.poll, stop)
    return {"published": published, "exit_code": 75 if stop.is_set() else 0}
