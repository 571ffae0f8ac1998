"""Command-line flags and JSON output that the benchmarks share."""

import argparse
import json
import sys
from typing import Any


def make_parser(docstring: str, *, quick: bool = False) -> argparse.ArgumentParser:
    """Returns a parser with `--json` and, if `quick`, with `--quick`.

    Args:
      docstring: docstring of the benchmark; its first line becomes the description.
      quick: whether the benchmark has a short form.
    """
    parser = argparse.ArgumentParser(description=docstring.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the report on one line")
    if quick:
        parser.add_argument("--quick", action="store_true", help="fewer and smaller measurements")
    return parser


def write_report(report: Any, arguments: argparse.Namespace) -> None:
    """Prints the report as JSON: indented, or on one line with `--json`."""
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")
