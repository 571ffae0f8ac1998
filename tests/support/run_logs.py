"""Writes log records of a run as its jobs do."""

import json
from typing import Any

from realm_jax.storage.layout import RunDir


def append_record(run: RunDir, name: str, record: dict[str, Any]) -> None:
    """Appends a record to `logs/NAME.jsonl`."""
    run.logs.mkdir(parents=True, exist_ok=True)
    with (run.logs / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
