"""`realm eval`: exact match and recall of a trained run on a question file."""

import argparse
import json
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_question_arguments, add_retriever, fusion_of, natural
from realm_jax.storage.layout import RunDir, path_of

EXAMPLE = "realm eval --workdir=runs/demo --questions=runs/demo/corpus/questions/held_out.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    add_question_arguments(parser)
    add_retriever(parser)
    parser.add_argument(
        "--limit", type=natural, default=0, help="number of questions; 0: all (default)"
    )
    parser.add_argument(
        "--predictions", help="output file; default: predictions.jsonl in the workdir"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Answers every question and scores the answers."""
    runtime.start_interruptible()
    from realm_jax.data.question_files import read_questions
    from realm_jax.inference.answerer import Answerer
    from realm_jax.inference.evaluate import evaluate

    questions = read_questions(arguments.questions, arguments.format, arguments.part)
    questions = questions[: arguments.limit or None]
    answerer = Answerer.open(arguments.workdir).by(arguments.retriever, fusion_of(arguments))
    kept = RunDir(arguments.workdir).root / "predictions.jsonl"
    predictions = path_of(arguments.predictions) if arguments.predictions else kept
    report = evaluate(answerer, questions, predictions)
    if not arguments.json:
        with predictions.open(encoding="utf-8") as lines:
            sys.stdout.writelines(_row(json.loads(line)) for line in lines)
    recalls = ", ".join(f"recall@{k} {v:.1%}" for k, v in report["recall_at"].items())
    sys.stderr.write(
        f"{report['questions']} questions: exact match {report['exact_match']:.1%} (upper "
        f"bound for these passages: {report['reader_oracle']:.1%}); {recalls}\n"
    )
    return report


def _row(scored: dict[str, Any]) -> str:
    """One tab-separated line: right or wrong, question, prediction, answers, rank, evidence."""
    best = next((p for p in scored["passages"] if p["span"] is not None), None)
    evidence = ""
    if best is not None:
        start, stop = best["span"]
        before, after = best["text"][max(start - 40, 0) : start], best["text"][stop : stop + 40]
        evidence = f"{best['title']}: {before}>>{best['text'][start:stop]}<<{after}"
    accepted = " | ".join(scored["answers"])
    rank = scored["answer_rank"] or "-"
    mark = "right" if scored["right"] else "wrong"
    row = [mark, scored["question"], scored["prediction"], accepted, f"rank {rank}", evidence]
    return "\t".join(" ".join(str(cell).split()) for cell in row) + "\n"
