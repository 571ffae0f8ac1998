"""`realm train`: the trainer job."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped

EXAMPLE = "realm train --config=experiments/almanac.py --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_job_arguments(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal."""
    stop = runtime.start(devices=arguments.devices)
    config = job_config(arguments)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run

        return dry_run(arguments, config)
    from realm_jax.trainer.run import run

    def train() -> dict[str, Any]:
        run(arguments.workdir, config, stop)
        return {"state": "done", "steps": config.stages.realm.steps}

    return until_stopped(train)
