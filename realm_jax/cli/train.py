"""`realm train`: the trainer job."""

import argparse
import sys
from typing import Any

from ml_collections import ConfigDict

from realm_jax import runtime
from realm_jax.cli.arguments import natural, positive
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped
from realm_jax.errors import UsageError

EXAMPLE = "realm train --config=experiments/almanac.py --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_job_arguments(parser)
    parser.add_argument("--replay", metavar="FILE", help="only run a batch of RUN/replay again")
    parser.add_argument("--coordinator", help="HOST:PORT of process 0; auto on Cloud TPU")
    parser.add_argument("--processes", type=positive, default=1, help="processes, on all hosts")
    parser.add_argument("--process", type=natural, default=0, help="the number of this one, from 0")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal.

    Raises:
      UsageError: one process of many, and no coordinator; or numbers that jax knows better.
    """
    numbered = arguments.processes > 1 or arguments.process > 0
    if numbered and not arguments.coordinator:
        raise UsageError(
            "this process does not know the others",
            where="--coordinator",
            expected="HOST:PORT of process 0, with --processes and --process; auto on Cloud TPU",
            fix="give it, or leave --processes and --process out to train as one process",
        )
    if numbered and arguments.coordinator == "auto":
        raise UsageError(
            "with auto, Cloud TPU says how many processes there are and which one this is",
            where="--processes, --process",
            expected="neither of them beside --coordinator=auto",
            found=f"--processes={arguments.processes} --process={arguments.process}",
            fix="leave them out, or give --coordinator=HOST:PORT",
        )
    stop = runtime.start(devices=arguments.devices)
    from realm_jax.parallel import hosts

    if arguments.coordinator:
        hosts.join(arguments.coordinator, arguments.processes, arguments.process)
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
        f"stage {report['stage']}, the batch of step {report['step']} on the parameters of step "
        f"{report['checkpoint_step']}:\n"
    )
    for name, figure in report["figures"].items():
        sys.stderr.write(f"  {name} {figure}\n")
    broken = report["parameters_not_finite"]
    sys.stderr.write(f"parameters not finite after this step: {', '.join(broken) or 'none'}\n")
    return report
