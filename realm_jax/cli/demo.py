"""`realm demo`: trains REALM on the built-in almanac and measures it on held-out facts."""

import argparse
import json
import logging
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli.arguments import add_json
from realm_jax.cli.demo_config import almanac_config
from realm_jax.cli.jobs import run_both, until_stopped
from realm_jax.cli.overrides import ALL
from realm_jax.errors import InputError
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir

EXAMPLE = "realm demo --workdir=runs/demo"

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument(
        "--workdir",
        default="runs/demo",
        help="run folder; an existing run is resumed (default: runs/demo)",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    add_json(parser)
    parser.set_defaults(overridable=ALL)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds the almanac, runs both jobs, evaluates, and writes report.json and report.html."""
    stop = runtime.start()
    from realm_jax.corpus.almanac_store import build_almanac
    from realm_jax.report.write import write_report

    run_dir = RunDir(arguments.workdir)
    if not files.is_local(run_dir.root):
        raise InputError(
            "the demo writes its corpus into the workdir, which must be local",
            where=f"--workdir={arguments.workdir}",
            expected="a local folder",
            found="an object store",
        )
    corpus = Path(arguments.workdir) / "corpus"
    config = demo_config(corpus, arguments.seed, arguments.overrides)
    log.info("writing the almanac corpus to %s", corpus)
    began = time.monotonic()
    built = build_almanac(corpus)
    seconds = time.monotonic() - began
    log.info("%d passages that state %d facts", built["passages"], built["facts"])

    def run_and_measure() -> dict[str, Any]:
        run_both(arguments.workdir, config, stop)
        measured = _measure(arguments.workdir, config)
        measured["seconds"] = {"corpus": round(seconds, 1), **measured["seconds"]}
        counts = {key: built[key] for key in ("passages", "facts", "held_out_facts")}
        report = {**counts, **measured, "seed": config.seed}
        files.write_bytes(run_dir.report, json.dumps(report, indent=1).encode())
        write_report(arguments.workdir)
        _print_summary(arguments.workdir, report)
        return report

    return until_stopped(run_and_measure)


def demo_config(corpus: Path, seed: int, overrides: dict[str, str]) -> ConfigDict:
    """The config of the demo, checked and locked."""
    config = almanac_config(corpus)
    config.seed = seed
    for key, text in overrides.items():
        config_lib.set_key(config, key, text)
    return config_lib.check(config)


def _measure(workdir: str, config: ConfigDict) -> dict[str, Any]:
    """Measures on held-out facts, which no training sentence states."""
    from realm_jax.data.question_files import read_questions
    from realm_jax.inference.answerer import Answerer
    from realm_jax.inference.evaluate import closed_book, evaluate
    from realm_jax.report.measure import measure
    from realm_jax.report.run_data import read_run
    from realm_jax.trainer.inputs import open_inputs

    began = time.monotonic()
    measured = measure(read_run(workdir))
    answerer = Answerer.open(workdir)
    questions = read_questions(Path(config.corpus.questions) / "held_out.jsonl")
    judged = evaluate(answerer, questions[: config.evaluation.queries])
    text = open_inputs(config).held_out.first(config.evaluation.queries)
    measured |= {
        "exact_match": judged["exact_match"],
        "exact_match_closed_book": closed_book(answerer, text),
        "question_recall_at": judged["evidence_recall_at"],
    }
    measured["seconds"]["measure"] = round(time.monotonic() - began, 1)
    return measured


def _print_summary(workdir: str, report: dict[str, Any]) -> None:
    recall = next(value for key, value in report.items() if key.startswith("recall_at_"))
    quoted = shlex.quote(str(workdir))
    sys.stderr.write(
        f"""
On facts that no training sentence states:
  recall@5 of masked sentences   untrained {recall["untrained"]:.1%}   after ICT \
{recall["ict"]:.1%}   after REALM {recall["realm"]:.1%}
  retrieval utility              {report["retrieval_utility"]:.2f} nats per token
  questions answered exactly     {report["exact_match"]:.1%} \
(closed book {report["exact_match_closed_book"]:.1%})
  fresh indexes swapped in       {report["index_swaps"]} (staleness up to \
{report["staleness_steps"]["max"]:.0f} steps)

Next:
  {workdir}/report.html
  realm ask --workdir={quoted} "What do people call Norway in Icelandic?"
  realm ask --workdir={quoted} "In Slovenian, people call Germany [MASK]."
  realm check {quoted}
"""
    )
