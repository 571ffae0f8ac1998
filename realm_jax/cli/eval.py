"""`realm eval`: exact match and recall of a run on questions, or measures of a judged set."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.arguments import (
    add_flag,
    add_json,
    add_question_arguments,
    add_retriever,
    fusion_of,
    natural,
)
from realm_jax.cli.overrides import add_workdir
from realm_jax.errors import UsageError
from realm_jax.storage.layout import RunDir, path_of

if TYPE_CHECKING:
    from realm_jax.inference.answerer import Answerer
    from realm_jax.inference.prediction_file import PredictionFile

EXAMPLE = "realm eval --workdir=runs/demo --questions=runs/demo/corpus/questions/held_out.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_workdir(parser)
    add_json(parser)
    add_question_arguments(parser, judged=True)
    add_retriever(parser)
    parser.add_argument(
        "--limit", type=natural, default=0, help="number of questions; 0: all (default)"
    )
    parser.add_argument(
        "--predictions", help="output file; default: predictions.jsonl in the workdir"
    )
    parser.add_argument(
        "--run-file", help="beir: TREC run file to write; default: judged/SET.RETRIEVER.trec in W"
    )
    parser.add_argument(
        "--against", metavar="RUNFILE", help="beir: TREC run file of any system to compare with"
    )
    add_flag(
        parser,
        "--skip-unknown",
        "beir: leave out judgements of documents that are not in the corpus",
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Answers every question and scores the answers, or evaluates the retriever."""
    runtime.start_interruptible()
    return _judged(arguments) if arguments.format == "beir" else _answers(arguments)


def _answers(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.data.question_checks import check_evidence
    from realm_jax.data.question_files import read_questions
    from realm_jax.inference.evaluate import evaluate
    from realm_jax.inference.prediction_file import PredictionFile

    for flag in ("run_file", "against", "skip_unknown"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag.replace('_', '-')} needs --format=beir")
    questions = read_questions(arguments.questions, arguments.format, arguments.part)
    questions = questions[: arguments.limit or None]
    kept = RunDir(arguments.workdir).root / "predictions.jsonl"
    path = path_of(arguments.predictions) if arguments.predictions else kept
    answerer = _answerer(arguments)
    check_evidence(questions, len(answerer.store))
    with PredictionFile.open(path) as predictions:
        report = evaluate(answerer, questions, predictions)
    recalls = ", ".join(f"recall@{k} {v:.1%}" for k, v in report["recall_at"].items())
    sys.stderr.write(
        f"{report['questions']} questions: exact match {report['exact_match']:.1%} (upper "
        f"bound for these passages: {report['reader_oracle']:.1%}), F1 {report['f1']:.1%}; "
        f"{recalls}\n"
    )
    if not answerer.networks.has("question_embedder"):
        sys.stderr.write("no question is answered: this run has no reader for questions\n")
    if not arguments.json:
        sys.stdout.writelines(map(_row, predictions.read()))
    return report | ({} if predictions.error is None else _not_written(predictions))


def _not_written(predictions: "PredictionFile") -> dict[str, Any]:
    """The scores are valid, the file is not: an exit code for scripts, and the error."""
    sys.stderr.write(f"{predictions.path} is incomplete: {predictions.error}\n")
    return {"predictions_error": str(predictions.error), "exit_code": exit_codes.ERROR}


def _answerer(arguments: argparse.Namespace) -> "Answerer":
    from realm_jax.inference.answerer import Answerer

    answerer = Answerer.open(arguments.workdir, arguments.overrides)
    return answerer.by(arguments.retriever, fusion_of(arguments))


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


def _judged(arguments: argparse.Namespace) -> dict[str, Any]:
    from realm_jax.corpus.document_lookup import existing_documents
    from realm_jax.data.judged_sets import read_judged_set
    from realm_jax.data.trec_runs import read_run
    from realm_jax.inference.judged import evaluate_judged

    if arguments.predictions:
        raise UsageError("--predictions is not for --format=beir: see --run-file")
    judged = read_judged_set(Path(arguments.questions).absolute(), arguments.part)
    against = read_run(arguments.against) if arguments.against else None
    answerer = _answerer(arguments)
    known = existing_documents(answerer.store)
    if arguments.skip_unknown and any(known):
        judged = judged.without_unknown(known)
    judged.check_documents(known)
    judged = judged.first(arguments.limit) if arguments.limit else judged
    default = (
        RunDir(arguments.workdir).root / "judged" / f"{judged.name}.{arguments.retriever}.trec"
    )
    run_file = path_of(arguments.run_file) if arguments.run_file else default
    report = evaluate_judged(answerer, judged, run_file, against)
    if not arguments.json:
        sys.stdout.writelines(_table(report))
    sys.stderr.write(f"{report['queries']} queries; documents in {run_file}\n")
    return report


def _table(report: dict[str, Any]) -> list[str]:
    """A tab-separated line per measure: name, value, and the difference to another run."""
    names = [("nDCG@10", "ndcg_at_10"), ("MAP", "map"), ("MRR@10", "mrr_at_10")]
    lines = [(name, report[key], report.get("against", {}).get(key)) for name, key in names]
    for k, value in report["recall_at"].items():
        other = report["against"]["recall_at"][k] if "against" in report else None
        lines.append((f"recall@{k}", value, other))
    return [f"{name}\t{value:.4f}{_difference(other)}\n" for name, value, other in lines]


def _difference(other: dict[str, float] | None) -> str:
    if other is None:
        return ""
    return f"\t{other['difference']:+.4f} ({other['low']:+.4f} to {other['high']:+.4f})"
