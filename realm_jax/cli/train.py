"""`realm train`: the trainer job."""

import argparse
import sys
from typing import Any

from ml_collections import ConfigDict

from realm_jax import runtime
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped
from realm_jax.cli.processes import add_process_arguments, check_processes, join_processes

EXAMPLE = "realm train --config=almanac --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_job_arguments(parser)
    parser.add_argument(
        "--replay",
        metavar="FILE",
        help="run a saved batch once more, and nothing else: a file such as "
        "RUN/replay/STAGE_STEP.npz",
    )
    add_process_arguments(parser, "trainer")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal.

    Raises:
      UsageError: see `check_processes`.
    """
    check_processes(arguments)
    stop = runtime.start(devices=arguments.devices)
    from realm_jax.parallel import hosts

    join_processes(arguments)
    config = job_config(arguments)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run

        return dry_run(arguments, config)
    if arguments.replay is not None:
        return _replay(arguments, config)
    from realm_jax.trainer.run import run

    def train() -> dict[str, Any]:
        run(arguments.workdir, config, stop)
        return {"state": "done", "steps": config.stages.realm.steps}

    with hosts.membership():
        return until_stopped(train)


def _replay(arguments: argparse.Namespace, config: ConfigDict) -> dict[str, Any]:
    from realm_jax.trainer.replay import replay

    report = replay(arguments.workdir, config, arguments.replay)
    sys.stderr.write(
        f"stage {report['stage']}: batch of step {report['step']}, parameters of the checkpoint of "
        f"step {report['checkpoint_step']}\n"
    )
    for name, value in report["figures"].items():
        sys.stderr.write(f"  {name} {value}\n")
    not_finite = report["parameters_not_finite"]
    names = ", ".join(not_finite) or "none"
    sys.stderr.write(f"parameters that are not finite after this step: {names}\n")
    return report
