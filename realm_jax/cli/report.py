"""`realm report`: report.html and the model card of a run."""

import argparse
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_json, add_question_arguments
from realm_jax.cli.overrides import add_workdir

EXAMPLE = "realm report --workdir=runs/demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_workdir(parser, "run folder, finished or not")
    add_question_arguments(parser, required=False)
    add_json(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Computes missing measurements and writes the page."""
    runtime.start_interruptible()
    from realm_jax.data.question_files import Question, read_questions
    from realm_jax.report.write import write_report

    questions: list[Question] = []
    if arguments.questions:
        questions = read_questions(arguments.questions, arguments.format, arguments.part)
    path = write_report(arguments.workdir, questions, arguments.overrides)
    if not arguments.json:
        sys.stdout.write(f"{path}\n")
    return {"report": str(path)}
