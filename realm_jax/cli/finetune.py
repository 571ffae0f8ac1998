"""`realm finetune`: fine-tunes a pre-trained run on questions, with its index frozen."""

import argparse
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_question_arguments
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped

EXAMPLE = "realm finetune --workdir=runs/wiki --questions=curatedtrec.tsv --format=trec"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_job_arguments(parser)
    add_question_arguments(parser)
    parser.add_argument(
        "--without",
        default="",
        help="question file; its questions are removed from the training questions",
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tunes from the last pre-training checkpoint and exports the model."""
    stop = runtime.start(devices=arguments.devices)
    arguments.overrides |= {
        "corpus.questions": arguments.questions,
        "corpus.questions_format": arguments.format,
        "corpus.questions_part": arguments.part,
        "corpus.questions_without": arguments.without,
    }
    config = job_config(arguments)
    if arguments.dry_run:
        from realm_jax.cli.dry_run import dry_run

        return dry_run(arguments, config, ("qa",))
    from realm_jax.trainer.run import finetune

    def tune() -> dict[str, Any]:
        return {"state": "done", "export_step": finetune(arguments.workdir, config, stop)}

    return until_stopped(tune)
