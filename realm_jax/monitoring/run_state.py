"""What is known of a run while it runs: gathered from records as they come, drawn by `view`."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from realm_jax.config import with_current_keys
from realm_jax.defaults import STAGES
from realm_jax.monitoring.status import read_status
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir
from realm_jax.storage.logs import read_log

_REMEMBERED = 500  # records of a stage


@dataclass
class Picture:
    """Where both jobs are, and the figures of the stage at work.

    Attributes:
      name: of the run folder.
      stages: the stages that this run has, and their steps, in order.
      stage: at work; `start` before the first, `done` after the last.
      step: done in that stage.
      records: of that stage, oldest first.
      builder: `state`, `done`, `total`, `eta_s`, `heartbeat_age_s` of `read_status`.
      refresh: the newest record of a finished refresh; {} before the first.
      now: seconds since 1970 that ages are counted to.
    """

    name: str
    stages: dict[str, int]
    stage: str = "start"
    step: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    builder: dict[str, Any] = field(default_factory=dict)
    refresh: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0

    def take(self, record: dict[str, Any]) -> None:
        """Adds a record of the stage at work; those that it does again are forgotten.

        The list is replaced, not changed: another thread may be drawing it.
        """
        kept = [known for known in self.records if known["step"] <= record["step"]]
        self.records = [*kept, record][-_REMEMBERED:]
        self.step = max(self.step, record["step"])

    def newest(self, figure: str) -> tuple[int, Any] | None:
        """Step and value of a figure when it was last measured."""
        for record in reversed(self.records):
            if record.get(figure) is not None:
                return record["step"], record[figure]
        return None

    def course(self, figure: str) -> list[float]:
        """All values of a figure, oldest first."""
        return [record[figure] for record in self.records if record.get(figure) is not None]


def stages_of(config: dict[str, Any]) -> dict[str, int]:
    """Steps of each stage that a run of this config trains, in order."""
    config = with_current_keys(config)
    corpus, settings = config.get("corpus", {}), config.get("stages", {})
    found = {name: settings.get(name, {}).get("steps", 0) for name in STAGES}
    needs = {"qa": corpus.get("questions"), "tagger": settings.get("tagger", {}).get("train_file")}
    return {name: steps for name, steps in found.items() if steps and needs.get(name, True)}


def look(run: RunDir, *, clock: Callable[[], float] = time.time) -> Picture:
    """The picture of a run from its folder alone, wherever that lies.

    Raises:
      InputError: see `read_status`.
    """
    status = read_status(run, clock=clock)
    picture = Picture(run.root.name or str(run.workdir), stages_of(_config(run)), now=clock())
    picture.stage = status["stage"] or "start"
    shown = "realm" if picture.stage == "done" else picture.stage
    for record in read_log(run.logs / f"{shown}.jsonl"):
        picture.take(record)
    picture.step = max(picture.step, status["step"] or 0)
    picture.builder = status["builder"]
    picture.refresh = newest_refresh(run)
    return picture


def newest_refresh(run: RunDir) -> dict[str, Any]:
    """The newest record of a finished refresh; {} if there is none."""
    return (read_log(run.logs / "index_builder.jsonl") or [{}])[-1]


def _config(run: RunDir) -> dict[str, Any]:
    try:
        return dict(json.loads(files.read_bytes(run.config) or b"{}"))
    except ValueError:
        return {}  # met while it was being written
