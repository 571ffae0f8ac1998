"""`realm run`: both jobs on this machine, as two processes."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments, job_config, run_both

HELP = "both jobs on this machine, as two processes"
EXAMPLE = "realm run --config=experiments/wiki_sample.py --workdir=runs/wiki"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_job_arguments(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains with a builder beside it."""
    stop = runtime.start(devices=arguments.devices)
    config = job_config(arguments)
    from realm_jax.trainer.loop import Stopped

    try:
        run_both(arguments.workdir, config, stop)
    except Stopped as stopped:
        return {"state": "stopped", "stage": stopped.stage, "step": stopped.step, "exit_code": 75}
    return {"state": "done", "steps": config.stages.realm.steps}
