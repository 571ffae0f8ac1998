"""`realm check`: is a checkpoint, snapshot, index, export, corpus or run what it should be?"""

import argparse
import sys
from typing import Any

EXAMPLE = "realm check runs/a/published_index/00000500"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("folder", help="what to verify")
    parser.add_argument("--repair", action="store_true", help="drop what is beyond use")
    parser.add_argument("--dry-run", action="store_true", help="with --repair: only say what")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Reads every byte; exit code 0 if all is sound, after the repair if there is one, 1 if not."""
    from realm_jax.exchange.check import check
    from realm_jax.exchange.repair import repair

    repairs = repair(arguments.folder, dry_run=arguments.dry_run) if arguments.repair else []
    for one in repairs:
        would = "would be " if arguments.dry_run else ""
        sys.stderr.write(f"{one['file']}: {one['because']}: {would}{one['done']}\n")
    report = check(arguments.folder)
    for problem in report["problems"]:
        sys.stderr.write(f"{problem['file']}\n")
        sys.stderr.write(f"  expected: {problem['expected']}\n  found:    {problem['found']}\n")
    sys.stderr.write(f"{report['kind']}: {_verdict(report)}\n")
    return {**report, "repairs": repairs, "exit_code": 0 if report["ok"] else 1}


def _verdict(report: dict[str, Any]) -> str:
    if not report["ok"]:
        return "NOT SOUND"
    unseen = report["kind"] == "weights"
    return "can be read; these files keep no checksums" if unseen else "sound"
