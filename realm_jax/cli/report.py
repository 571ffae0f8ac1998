"""`realm report`: report.html and the model card of a run."""

import argparse
import sys
from typing import Any

from realm_jax import runtime

EXAMPLE = "realm report --workdir=runs/demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument("--workdir", required=True, help="run folder, finished or not")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Computes missing measurements and writes the page."""
    runtime.start_interruptible()
    from realm_jax.report.write import write_report

    path = write_report(arguments.workdir)
    if not arguments.json:
        sys.stdout.write(f"{path}\n")
    return {"report": str(path)}
