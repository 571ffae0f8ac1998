"""`realm eval`: exact match and recall of a trained run on a question file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import natural

HELP = "exact match and recall of a trained run on a file of questions"
EXAMPLE = "realm eval --workdir=runs/demo --questions=runs/demo/corpus/questions/held_out.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--questions", required=True, help="JSON lines: question, answers")
    parser.add_argument("--limit", type=natural, default=0, help="questions to use; 0 is all")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Answers every question and judges the answers."""
    runtime.log_to_stderr()
    from realm_jax.answer.answerer import Answerer
    from realm_jax.answer.evaluate import evaluate
    from realm_jax.data.open_qa import read_questions

    questions = read_questions(arguments.questions)
    questions = questions[: arguments.limit or None]
    answerer = Answerer.open(arguments.workdir)
    report = evaluate(answerer, questions, Path(arguments.workdir) / "predictions.jsonl")
    recalls = ", ".join(f"recall@{k} {v:.1%}" for k, v in report["recall_at"].items())
    sys.stderr.write(
        f"{report['questions']} questions: exact match {report['exact_match']:.1%}; {recalls}\n"
    )
    return report
