"""`realm train`: the trainer job."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments, job_config

HELP = "the trainer job: ICT, reader warm start, REALM pre-training, open QA"
EXAMPLE = "realm train --config=experiments/almanac.py --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_job_arguments(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal."""
    stop = runtime.start(devices=arguments.devices)
    config = job_config(arguments)
    from realm_jax.trainer.loop import Stopped
    from realm_jax.trainer.run import run

    try:
        run(arguments.workdir, config, stop)
    except Stopped as stopped:
        return {"state": "stopped", "stage": stopped.stage, "step": stopped.step, "exit_code": 75}
    return {"state": "done", "steps": config.stages.realm.steps}
