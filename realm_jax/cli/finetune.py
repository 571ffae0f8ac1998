"""`realm finetune`: fine-tunes a pre-trained run on questions, with its index frozen."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_question_arguments
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped
from realm_jax.errors import UsageError

EXAMPLE = "realm finetune --workdir=runs/wiki --questions=curatedtrec.tsv --format=trec"
KEYS = {  # the config key of each flag
    "questions": "corpus.questions",
    "format": "corpus.questions_format",
    "part": "corpus.questions_part",
    "without": "corpus.questions_without",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_job_arguments(parser)
    add_question_arguments(parser, from_config=True)
    parser.add_argument(
        "--without",
        help="question file; its questions are removed from the training questions; default: that "
        "of the config",
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tunes from the last pre-training checkpoint and exports the model.

    Raises:
      UsageError: a flag and its config key are both given.
    """
    stop = runtime.start(devices=arguments.devices)
    arguments.overrides |= _flag_overrides(arguments)
    config = job_config(arguments)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run

        return dry_run(arguments, config, ("qa",))
    from realm_jax.trainer.run import finetune

    def tune() -> dict[str, Any]:
        return {"state": "done", "export_step": finetune(arguments.workdir, config, stop)}

    return until_stopped(tune)


def _flag_overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """The config keys whose flags are given; others keep the value of the config."""
    given = {flag: getattr(arguments, flag) for flag in KEYS}
    overrides = {KEYS[flag]: value for flag, value in given.items() if value is not None}
    for flag, key in KEYS.items():
        if key in overrides and key in arguments.overrides:
            raise UsageError(
                f"{key} is given twice",
                where=f"--{flag} and --config.{key}",
                expected="one of them",
                fix=f"leave out --config.{key}",
            )
    return overrides
