"""`realm status`: where a run stands, from the outside."""

import argparse
import sys
from typing import Any

EXAMPLE = "realm status --workdir=runs/demo --json"
_SILENT = 600  # seconds without a sign of life that are worth a word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--workdir", required=True, help="run folder, or gs://... address")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints stage, step, index and builder; touches nothing."""
    from realm_jax.exchange.layout import RunDir
    from realm_jax.exchange.status import read_status

    status = read_status(RunDir(arguments.workdir))
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(status)))
    return status


def _lines(status: dict[str, Any]) -> list[str]:
    builder, age = status["builder"], status["heartbeat_age_s"]
    of = f" of {status['steps']}" if status["steps"] is not None else ""
    trainer = "no sign of life yet"
    if status["stage"] is not None:
        trainer = f"{status['stage']}, step {status['step']}{of}{_ago(age)}"
    lines = [f"trainer  {trainer}"]
    if status["index_step"] is not None:
        lines += [
            f"index    of step {status['index_step']}, {status['staleness_steps']} steps behind"
        ]
    state = "no sign of life yet"
    if builder["state"] is not None:
        state = f"{builder['state']}{_share(builder)}{_ago(builder['heartbeat_age_s'])}"
    lines += [f"builder  {state}"]
    if status["ended"]:
        lines += ["run      ended"]
    elif age is not None and age > _SILENT:
        lines += ["run      silent: the same command resumes it if it died"]
    return lines


def _share(builder: dict[str, Any]) -> str:
    if builder["done"] is None or builder["total"] is None:
        return ""
    left = "" if builder["eta_s"] is None else f", {_span(builder['eta_s'])} left"
    return f" {builder['done']} of {builder['total']} passages{left}"


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f" ({_span(seconds)} ago)"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
