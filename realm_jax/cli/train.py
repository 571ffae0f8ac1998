"""`realm train`: the trainer job."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped

HELP = "the trainer job: ICT, reader warm start, REALM pre-training, open QA"
EXAMPLE = "realm train --config=experiments/almanac.py --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_job_arguments(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal."""
    stop = runtime.start(devices=arguments.devices)
    config = job_config(arguments)
    from realm_jax.trainer.run import run

    def train() -> dict[str, Any]:
        run(arguments.workdir, config, stop)
        return {"state": "done", "steps": config.stages.realm.steps}

    return until_stopped(train)
