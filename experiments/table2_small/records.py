"""The records of finished runs: one file for each row and seed, and one of untrained retrievers."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
from etils import epath
from evidence_runs.measure import commit
from evidence_runs.rows import UNTRAINED
from evidence_runs.start import Record, read_of_one_start, start_of

from realm_jax.errors import MismatchError
from realm_jax.storage import files


def metrics_file(records: Path, row: str, seed: int) -> Path:
    """The file with the metrics of a run."""
    return records / f"{row}_{seed}.json"


def is_recorded(kept: Path, overrides: list[str]) -> bool:
    """Whether the record exists; ends the process if it is of other overrides."""
    if not kept.exists():
        return False
    if json.loads(kept.read_text())["overrides"] != overrides:
        sys.exit(f"{kept} is from a run with other overrides; use the same, or another --records")
    return True


def described(start: str | None, tagger: str) -> Record:
    """The fields of a record that say what its run starts from; none for random weights.

    Args:
      start: the flag `--start`.
      tagger: the flag `--tagger`; of a workdir, its name.
    """
    return {"start": start_of(start), "tagger": Path(tagger).name} if start else {}


def require_same_start(records: Path, run: Record) -> None:
    """Raises a MismatchError if the folder has records of another encoder or tagger than `run`.

    Args:
      records: the folder.
      run: see `described`; nothing is required of runs from random weights.
    """
    if run:
        read_of_one_start([*sorted(records.glob("*_*.json")), *records.glob(UNTRAINED)], run)


def require_same_overrides(records: Path, overrides: list[str]) -> None:
    """Raises a MismatchError if the folder has records of rows with other overrides.

    Rows and seeds are compared with each other, so all of them need the same.
    """
    for path in sorted(records.glob("*_*.json")):
        own = json.loads(path.read_text()).get("overrides", [])
        if own != overrides:
            raise MismatchError(
                "records in this folder are from runs with other overrides",
                where=path,
                expected=" ".join(own) or "no overrides",
                found=" ".join(overrides) or "no overrides",
                fix="give the same overrides, or another --records=FOLDER and --home=FOLDER",
            )


def store(
    kept: Path, metrics: dict[str, Any], run: Record, overrides: list[str], began: float
) -> None:
    """Writes a record; ends the process if the work was stopped."""
    if "exit_code" in metrics:
        sys.exit(metrics["exit_code"])
    made = {
        **metrics,
        **run,
        "overrides": overrides,
        "commit": commit(),
        "device": jax.devices()[0].device_kind,
        "command_seconds": round(time.monotonic() - began, 1),  # after a stop: the last command
    }
    files.write_bytes(epath.Path(kept), f"{json.dumps(made)}\n".encode())
