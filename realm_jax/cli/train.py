"""`realm train`: the trainer job."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import natural, positive
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped

HELP = "the trainer job: ICT, reader warm start, REALM pre-training, open QA"
EXAMPLE = "realm train --config=experiments/almanac.py --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_job_arguments(parser)
    parser.add_argument("--coordinator", help="HOST:PORT of process 0; auto on Cloud TPU")
    parser.add_argument("--processes", type=positive, default=1, help="processes, on all hosts")
    parser.add_argument("--process", type=natural, default=0, help="the number of this one, from 0")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal."""
    stop = runtime.start(devices=arguments.devices)
    from realm_jax.parallel import hosts

    if arguments.coordinator:
        hosts.join(arguments.coordinator, arguments.processes, arguments.process)
    config = job_config(arguments)
    from realm_jax.trainer.run import run

    def train() -> dict[str, Any]:
        run(arguments.workdir, config, stop)
        return {"state": "done", "steps": config.stages.realm.steps}

    with hosts.membership():
        return until_stopped(train)
