"""`realm compile`: compiles a step with the TPU compiler, on a machine without TPUs."""

import argparse
import sys
from pathlib import Path
from typing import Any

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli.arguments import count, positive
from realm_jax.planning.chips import slice_of
from realm_jax.planning.plan import builder_chips, embedding_seconds
from realm_jax.planning.reference_reports import BERT_VOCABULARY, STEPS, WIKIPEDIA, add_report
from realm_jax.planning.topology import prepare

EXAMPLE = "realm compile --topology=v5e:8x8 --config=realm_wikipedia --step=train"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument("--topology", required=True, help="CHIP:SHAPE, as in v4:4x4x4")
    parser.add_argument("--config", help="recipe name or Python file; default: the paper's sizes")
    parser.add_argument("--step", choices=STEPS, default="train")
    parser.add_argument(
        "--vocabulary",
        type=positive,
        default=BERT_VOCABULARY,
        help="size of the vocabulary, in word pieces",
    )
    add_corpus_arguments(parser)
    parser.add_argument("--save", type=Path, help="file of reports; this report is added to it")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    parser.set_defaults(overridable=True)


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --passages and --builder_share."""
    parser.add_argument(
        "--passages", type=count, default=WIKIPEDIA, help="passages of the corpus, as in 1e9"
    )
    parser.add_argument(
        "--builder_share",
        type=float,
        default=0.2,
        help="share of all chips that build the index, 0 to 1",
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compiles and prints the report; exit code 1 if a check fails (memory, sharding)."""
    place = slice_of(arguments.topology)
    builders = builder_chips(place, arguments.builder_share)
    prepare()
    runtime.start_interruptible()
    config = config_lib.load(arguments.config, arguments.overrides)
    from realm_jax.planning.compile_report import compile_report, report_lines

    report = compile_report(config, place, arguments.step, arguments.vocabulary)
    if arguments.step == "embed":
        passages = arguments.passages
        refresh = embedding_seconds(report, passages, builders)
        report["refresh"] = {"passages": passages, "builder_chips": builders, "seconds": refresh}
    if arguments.save is not None:
        add_report(arguments.save, report)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in report_lines(report)))
    return {**report, "exit_code": 0 if all(report["checks"].values()) else 1}
