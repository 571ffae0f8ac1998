"""`realm check`: is a checkpoint, snapshot, index, export, corpus or run what it should be?"""

import argparse
import sys
from typing import Any

EXAMPLE = "realm check runs/a/published_index/00000500"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("folder", help="what to verify")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Reads every byte; exit code 0 if all is sound, 1 if not."""
    from realm_jax.exchange.check import check

    report = check(arguments.folder)
    for problem in report["problems"]:
        sys.stderr.write(f"{problem['file']}\n")
        sys.stderr.write(f"  expected: {problem['expected']}\n  found:    {problem['found']}\n")
    sys.stderr.write(f"{report['kind']}: {'sound' if report['ok'] else 'NOT SOUND'}\n")
    return {**report, "exit_code": 0 if report["ok"] else 1}
