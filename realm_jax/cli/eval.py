"""`realm eval`: exact match and recall of a trained run on a question file."""

import argparse
import json
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_question_arguments, natural
from realm_jax.storage.layout import RunDir, path_of

EXAMPLE = "realm eval --workdir=runs/demo --questions=runs/demo/corpus/questions/held_out.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    add_question_arguments(parser)
    parser.add_argument("--limit", type=natural, default=0, help="questions to use; 0 is all")
    parser.add_argument("--predictions", help="file to write; default: predictions.jsonl there")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Answers every question and judges the answers."""
    runtime.start_interruptible()
    from realm_jax.data.question_files import read_questions
    from realm_jax.inference.answerer import Answerer
    from realm_jax.inference.evaluate import evaluate

    questions = read_questions(arguments.questions, arguments.format, arguments.part)
    questions = questions[: arguments.limit or None]
    answerer = Answerer.open(arguments.workdir)
    kept = RunDir(arguments.workdir).root / "predictions.jsonl"
    predictions = path_of(arguments.predictions) if arguments.predictions else kept
    report = evaluate(answerer, questions, predictions)
    if not arguments.json:
        with predictions.open(encoding="utf-8") as lines:
            sys.stdout.writelines(_row(json.loads(line)) for line in lines)
    recalls = ", ".join(f"recall@{k} {v:.1%}" for k, v in report["recall_at"].items())
    sys.stderr.write(
        f"{report['questions']} questions: exact match {report['exact_match']:.1%}, of at most "
        f"{report['reader_oracle']:.1%} in the passages read; {recalls}\n"
    )
    return report


def _row(judged: dict[str, Any]) -> str:
    """One line of the table for people: right or wrong, question, prediction, answers, evidence."""
    best = next((p for p in judged["passages"] if p["span"] is not None), None)
    evidence = ""
    if best is not None:
        start, stop = best["span"]
        before, after = best["text"][max(start - 40, 0) : start], best["text"][stop : stop + 40]
        evidence = f"{best['title']}: {before}>>{best['text'][start:stop]}<<{after}"
    accepted = " | ".join(judged["answers"])
    rank = judged["answer_rank"] or "-"
    mark = "right" if judged["right"] else "wrong"
    row = [mark, judged["question"], judged["prediction"], accepted, f"rank {rank}", evidence]
    return "\t".join(" ".join(str(cell).split()) for cell in row) + "\n"
