"""Compiles every program of both jobs (`realm compile --step=all`)."""

import json
import logging
import re
import subprocess
import time
from typing import Any

from ml_collections import ConfigDict

from realm_jax import runtime
from realm_jax.planning.chips import Slice
from realm_jax.planning.host_memory import host_bytes
from realm_jax.planning.programs import ENTRIES, names

log = logging.getLogger(__name__)
# In the compiler's message: all memory of the program, or of its temporaries alone.
_NEEDED = re.compile(r"(?:Used |HLO temporaries \()(\d+(?:\.\d+)?)([KMGT])(?: of|\) exceeds)")


def compile_all(
    config: ConfigDict, target: Slice, flags: list[str], vocabulary: int, passages: int
) -> dict[str, Any]:
    """Compiles each program in a child process, because the compiler does not free its memory.

    Args:
      config: of the run.
      target: slice of the trainer.
      flags: of `realm compile`, without --step, --json and --save.
      vocabulary: V.
      passages: N.

    Returns:
      `programs`, one report each; a program that does not compile has `name`, `job` and `error`,
      and, if it is too large, `hbm_bytes_peak` and `hbm_share`.
      `host_bytes`: bytes of one machine of the `trainer` and of the `builder`;
      `host_bytes_available`: what such a machine has.
    """
    programs = []
    chosen = names(config)
    for number, name in enumerate(chosen, 1):
        began = time.monotonic()
        programs.append(compile_in_child(name, flags, target))
        log.info("%d of %d: %s, %.0f s", number, len(chosen), name, time.monotonic() - began)
    return {
        "topology": target.name,
        "programs": programs,
        "host_bytes": host_bytes(config, passages, vocabulary, target.hosts),
        "host_bytes_available": target.host_bytes,
    }


def compile_in_child(name: str, flags: list[str], target: Slice) -> dict[str, Any]:
    """The report of one program, compiled in a child process; with `error` if it failed."""
    command = runtime.realm_command("compile", f"--step={name}", *flags, "--json")
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    if lines and lines[-1].startswith("{"):
        report: dict[str, Any] = json.loads(lines[-1])
        if "checks" in report:
            return report
    error = run.stderr[-2000:].strip()
    return {"name": name, "job": ENTRIES[name].job, **memory_of(error, target), "error": error}


def memory_of(error: str, target: Slice) -> dict[str, float]:
    """The memory that a program needs which the compiler refused as too large.

    Returns:
      `hbm_bytes_peak` and `hbm_share` per chip; nothing if the error is another one.
    """
    found = _NEEDED.search(error)
    if not found:
        return {}
    needed = float(found[1]) * 1024 ** (1 + "KMGT".index(found[2]))
    return {"hbm_bytes_peak": needed, "hbm_share": needed / target.chip.hbm_bytes}


def program_lines(report: dict[str, Any]) -> list[str]:
    """Formats the report of all programs as lines of text."""
    lines = [
        f"{report['topology']}; all numbers are per chip",
        f"{'program':<18} {'job':<8} {'memory':>9} {'share':>6} {'roofline':>11} {'compiled':>9}",
    ]
    for one in report["programs"]:
        start = f"{one['name']:<18} {one['job']:<8}"
        if "error" in one:
            lines += [f"{start} FAILED", *(f"  {line}" for line in one["error"].splitlines()[:6])]
            continue
        failed = [name for name, holds in one["checks"].items() if not holds]
        lines += [
            f"{start} {one['hbm_bytes_peak'] / 2**30:5.2f} GiB {one['hbm_share']:>6.1%} "
            f"{one['roofline_seconds'] * 1e3:8.1f} ms {one['compile_seconds']:>7.0f} s"
        ]
        lines += [f"  FAILED {name}" for name in failed]
    available = report["host_bytes_available"] / 1e9
    for job, needed in report["host_bytes"].items():
        lines += [f"one {job} machine needs {needed / 1e9:.1f} of {available:.0f} GB"]
    return lines
