"""`realm plan`: estimates a run from compile reports and stated assumptions."""

import argparse
import sys
from pathlib import Path
from typing import Any

from realm_jax.cli.arguments import add_json
from realm_jax.cli.compile_step import add_corpus_arguments
from realm_jax.cli.overrides import ALL
from realm_jax.planning.chips import slice_of
from realm_jax.planning.plan import plan, plan_lines
from realm_jax.planning.reference_reports import REFERENCE_REPORTS, check_sizes, reports_for

EXAMPLE = "realm plan --topology=v4:4x4x4 --passages=13353718 --builder_share=0.2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument("--topology", required=True, help="topology of the trainer, as in v4:4x4x4")
    add_corpus_arguments(parser)
    parser.add_argument("--config", help="recipe name or Python file; default: the paper's sizes")
    parser.add_argument(
        "--reports",
        type=Path,
        default=REFERENCE_REPORTS,
        help="reports of `realm compile --save` for the same sizes; default: stored ones of the "
        "paper's sizes",
    )
    add_json(parser)
    parser.set_defaults(overridable=ALL)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Estimates; runs nothing on a device."""
    place = slice_of(arguments.topology)
    from realm_jax.interop.start_config import load_config

    config = load_config(arguments.config, arguments.overrides)
    reports = reports_for(place, arguments.reports)
    check_sizes(reports, config, arguments.reports)
    made = plan(place, arguments.passages, arguments.builder_share, config, reports)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in plan_lines(made)))
    return made
