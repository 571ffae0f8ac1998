"""`realm train`: the trainer job."""

import argparse
import sys
from typing import Any

from ml_collections import ConfigDict

from realm_jax import runtime
from realm_jax.cli.arguments import natural, positive
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped
from realm_jax.errors import UsageError

EXAMPLE = "realm train --config=almanac --workdir=runs/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_job_arguments(parser)
    parser.add_argument(
        "--replay",
        metavar="FILE",
        help="run the saved batch of RUN/replay/FILE once more, and nothing else",
    )
    parser.add_argument("--coordinator", help="HOST:PORT of process 0; auto: detected on Cloud TPU")
    parser.add_argument(
        "--processes", type=positive, default=1, help="number of trainer processes on all hosts"
    )
    parser.add_argument("--process", type=natural, default=0, help="number of this process, from 0")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains until the last step or a stop signal.

    Raises:
      UsageError: several processes without a coordinator, or process numbers with auto.
    """
    numbered = arguments.processes > 1 or arguments.process > 0
    if numbered and not arguments.coordinator:
        raise UsageError(
            "--processes and --process need a coordinator",
            where="--coordinator",
            expected="HOST:PORT of process 0, with --processes and --process; auto on Cloud TPU",
            fix="add it, or leave out --processes and --process to train in one process",
        )
    if numbered and arguments.coordinator == "auto":
        raise UsageError(
            "--coordinator=auto reads the process numbers from Cloud TPU",
            where="--processes, --process",
            expected="neither of them with --coordinator=auto",
            found=f"--processes={arguments.processes} --process={arguments.process}",
            fix="leave them out, or use --coordinator=HOST:PORT",
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
        f"stage {report['stage']}: batch of step {report['step']}, parameters of the checkpoint of "
        f"step {report['checkpoint_step']}\n"
    )
    for name, value in report["figures"].items():
        sys.stderr.write(f"  {name} {value}\n")
    not_finite = report["parameters_not_finite"]
    names = ", ".join(not_finite) or "none"
    sys.stderr.write(f"parameters that are not finite after this step: {names}\n")
    return report
