"""`realm status`: progress of a run, read from its folder."""

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from realm_jax.cli.arguments import seconds
from realm_jax.cli.overrides import add_workdir
from realm_jax.monitoring.format import span

if TYPE_CHECKING:
    from realm_jax.storage.layout import RunDir

EXAMPLE = "realm status --workdir=runs/demo --json"
_SILENT_SECONDS = 600  # age of the heartbeat from which a note is printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_workdir(parser, "run folder, or its gs:// or s3:// address")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    form.add_argument("--watch", action="store_true", help="refresh until the run ends")
    parser.add_argument(
        "--every", type=seconds, default=5.0, help="seconds between refreshes; default: %(default)s"
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints stage, step, index and builder; read-only."""
    from realm_jax.monitoring.status import read_status
    from realm_jax.storage.layout import RunDir

    run = RunDir(arguments.workdir)
    if arguments.watch:
        return _watch(run, arguments.every)
    status = read_status(run)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(status)))
    return status


def _watch(run: "RunDir", every: float) -> dict[str, Any]:
    """A live view on a terminal, lines otherwise. Returns the last status."""
    from rich.console import Console
    from rich.live import Live

    from realm_jax.monitoring.live_view import View
    from realm_jax.monitoring.run_state import read_run_state

    console = Console()
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    status: dict[str, Any] = {}
    # Ctrl-C ends this command only, not the run.
    with live or contextlib.nullcontext(), contextlib.suppress(KeyboardInterrupt):
        while not status.get("ended"):
            if status:
                time.sleep(every)
            state = read_run_state(run)
            status = state.status
            if live is not None:
                live.update(View(state), refresh=True)
            else:
                sys.stdout.write("".join(f"{line}\n" for line in [*_lines(status), ""]))
                sys.stdout.flush()
    return status


def _lines(status: dict[str, Any]) -> list[str]:
    builder, age = status["builder"], status["heartbeat_age_s"]
    of = f" of {status['steps']}" if status["steps"] is not None else ""
    trainer = "no heartbeat yet"
    if status["stage"] is not None:
        trainer = f"{status['stage']}, step {status['step']}{of}{_ago(age)}"
    lines = [f"trainer  {trainer}"]
    if status["index_step"] is not None:
        old = "" if status["index_age_s"] is None else f", {span(status['index_age_s'])} old"
        behind = f"{status['staleness_steps']} steps behind{old}"
        lines += [f"index    of step {status['index_step']}, {behind}"]
    if builder["state"] is not None:
        state = f"{builder['state']}{_share(builder)}{_ago(builder['heartbeat_age_s'])}"
        lines += [f"builder  {state}"]
    elif status["stage"] not in ("tagger", "done"):  # a tagger run has no builder
        lines += ["builder  no heartbeat yet"]
    if status["ended"]:
        lines += ["run      ended"]
    elif age is not None and age > _SILENT_SECONDS:
        lines += ["run      no recent heartbeat: if it has stopped, the same command resumes it"]
    return lines


def _share(builder: dict[str, Any]) -> str:
    if builder["done"] is None or builder["total"] is None:
        return ""
    left = "" if builder["eta_s"] is None else f", {span(builder['eta_s'])} left"
    return f" {builder['done']} of {builder['total']} passages{left}"


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f" ({span(seconds)} ago)"
