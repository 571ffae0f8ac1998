"""`realm run`: the trainer and the index builder on this machine, as two processes."""

import argparse
import shlex
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments, job_config, run_both, until_stopped

EXAMPLE = "realm run --config=wiki_sample --workdir=runs/wiki"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_job_arguments(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs both jobs, then writes report.html."""
    stop = runtime.start(devices=arguments.devices)
    config = job_config(arguments)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run

        return dry_run(arguments, config)
    from realm_jax.report.write import write_report

    def both() -> dict[str, Any]:
        run_both(arguments.workdir, config, stop)
        page = write_report(arguments.workdir)
        sys.stderr.write(
            f"finished; report: {page}\n"
            f"next: realm ask --workdir={shlex.quote(arguments.workdir)} '...'\n"
        )
        return {"state": "done", "steps": config.stages.realm.steps}

    return until_stopped(both)
