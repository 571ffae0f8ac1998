"""`realm demo`: watch a retriever being learned from masked text on the built-in almanac."""

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli.demo_config import almanac_config
from realm_jax.cli.jobs import run_both, until_stopped
from realm_jax.errors import RealmError
from realm_jax.exchange import files
from realm_jax.exchange.layout import RunDir

EXAMPLE = "realm demo --workdir=runs/demo"

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--workdir", default="runs/demo", help="run folder; the same one resumes")
    parser.add_argument("--seed", type=int, default=0, help="another run of the same demo")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.set_defaults(overridable=True)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Builds the almanac, runs both jobs, measures, and writes report.json."""
    stop = runtime.start()
    from realm_jax.corpus.almanac_store import build_almanac

    run_dir = RunDir(arguments.workdir)
    corpus = Path(arguments.workdir) / "corpus"
    config = demo_config(corpus, arguments.seed, arguments.overrides)
    log.info("making the almanac in %s", corpus)
    began = time.monotonic()
    built = build_almanac(corpus)
    seconds = {"corpus": time.monotonic() - began}
    log.info("%d passages that state %d facts", built["passages"], built["facts"])

    def watch_it_learn() -> dict[str, Any]:
        run_both(arguments.workdir, config, stop)
        began = time.monotonic()
        measured = _measure(arguments.workdir, config)
        spent = seconds | _stage_seconds(run_dir) | {"measure": time.monotonic() - began}
        report = {
            "passages": built["passages"],
            "facts": built["facts"],
            "held_out_facts": built["held_out_facts"],
            "seconds": {stage: round(value, 1) for stage, value in spent.items()},
            **measured,
            "seed": arguments.seed,
        }
        files.write_bytes(run_dir.report, json.dumps(report, indent=1).encode())
        _say(arguments.workdir, report)
        return report

    return until_stopped(watch_it_learn)


def demo_config(corpus: Path, seed: int, overrides: dict[str, str]) -> ConfigDict:
    """The almanac's config for a corpus folder and a seed."""
    config = almanac_config(corpus)
    config.seed = seed
    for key, text in overrides.items():
        config_lib.set_key(config, key, text)
    return config_lib.check(config)


def _measure(workdir: str, config: ConfigDict) -> dict[str, Any]:
    """Everything on held-out facts; nothing here was trained on."""
    import jax

    from realm_jax.answer.answerer import Answerer
    from realm_jax.answer.evaluate import closed_book, evaluate
    from realm_jax.data.question_files import read_questions
    from realm_jax.trainer.checkpoint import final_parameters
    from realm_jax.trainer.index_in_use import staleness
    from realm_jax.trainer.inputs import open_inputs
    from realm_jax.trainer.measure import masked_recall
    from realm_jax.trainer.run import initial_networks, read_swaps

    run_dir = RunDir(workdir)
    inputs = open_inputs(config)
    text = inputs.held_out.first(config.evaluation.queries)
    embedders = {"untrained": jax.device_get(initial_networks(config, inputs)["embedder"])}
    for stage in ("ict", "realm"):
        found = final_parameters(run_dir, stage)
        if found is None:
            raise RealmError("a stage left no checkpoint", where=run_dir.checkpoints(stage))
        embedders[stage] = found[1]["embedder"]
    recalls = {
        name: masked_recall(config, inputs, text, parameters)
        for name, parameters in embedders.items()
    }
    answerer = Answerer.open(workdir)
    questions = read_questions(Path(config.corpus.questions) / "held_out.jsonl")
    judged = evaluate(answerer, questions[: config.evaluation.queries])
    swaps = read_swaps(run_dir)
    curve = _utility_curve(run_dir)
    return {
        "index_swaps": len(swaps) - 1,
        "staleness_steps": staleness(swaps, config.stages.realm.steps),
        f"recall_at_{config.evaluation.neighbours}": recalls,
        "retrieval_utility": curve[-1][1],
        "retrieval_utility_curve": curve,
        "exact_match": judged["exact_match"],
        "exact_match_closed_book": closed_book(answerer, text),
        "question_recall_at": judged["evidence_recall_at"],
    }


def _utility_curve(run_dir: RunDir) -> list[tuple[int, float]]:
    """Held-out retrieval utility by step, in nats per token, as the REALM stage measured it."""
    key = "held_out_retrieval_utility"
    return [(r["step"], r[key]) for r in _records(run_dir, "realm") if key in r]


def _stage_seconds(run_dir: RunDir) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage in config_lib.STAGES:
        for record in _records(run_dir, stage):
            if "seconds" in record:
                found[stage] = found.get(stage, 0.0) + record["seconds"]
    return found


def _records(run_dir: RunDir, stage: str) -> list[dict[str, Any]]:
    from realm_jax.trainer.checkpoint import read_jsonl

    return read_jsonl(run_dir.logs / f"{stage}.jsonl", lambda record: True)


def _say(workdir: str, report: dict[str, Any]) -> None:
    recall = next(value for key, value in report.items() if key.startswith("recall_at_"))
    sys.stderr.write(
        f"""
On facts that no training sentence stated:
  recall@5 of masked sentences   untrained {recall["untrained"]:.1%}   after ICT \
{recall["ict"]:.1%}   after REALM {recall["realm"]:.1%}
  retrieval utility              {report["retrieval_utility"]:.2f} nats per token
  questions answered exactly     {report["exact_match"]:.1%} \
(closed book {report["exact_match_closed_book"]:.1%})
  fresh indexes swapped in       {report["index_swaps"]} (staleness up to \
{report["staleness_steps"]["max"]:.0f} steps)

Where to look next:
  {workdir}/report.json
  realm ask --workdir={workdir} "What do people call Norway in Icelandic?"
  realm ask --workdir={workdir} "In Slovenian, people call Germany [MASK]."
  realm check {workdir}
"""
    )
