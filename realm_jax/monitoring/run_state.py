"""The state of a run as the live view shows it: read from its folder, or updated by the trainer."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from realm_jax.config import with_current_keys
from realm_jax.defaults import STAGES
from realm_jax.monitoring.status import read_config_and_logs, summarize
from realm_jax.storage.layout import RunDir
from realm_jax.storage.logs import read_log

_KEPT = 500  # newest records of the stage


@dataclass
class RunState:
    """Progress of both jobs, and the records of the current stage.

    Attributes:
      name: of the run folder.
      stages: number of steps of each stage of this run, in order.
      stage: current stage; `start` before the first, `done` after the last.
      step: finished steps of that stage.
      records: log records of that stage, oldest first.
      builder: `builder` of `read_status`.
      refresh: record of the last finished refresh; {} before the first.
      now: current time in seconds since 1970, for ages.
      status: result of `read_status` that the state was read from; {} inside the trainer.
    """

    name: str
    stages: dict[str, int]
    stage: str = "start"
    step: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    builder: dict[str, Any] = field(default_factory=dict)
    refresh: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        """Adds a record of the current stage; drops records of later steps, which are repeated.

        Replaces the list instead of changing it, because another thread may be drawing it.
        """
        kept = [earlier for earlier in self.records if earlier["step"] <= record["step"]]
        self.records = [*kept, record][-_KEPT:]
        self.step = max(self.step, record["step"])

    def latest(self, metric: str) -> tuple[int, Any] | None:
        """Step and value of the last measurement of a metric; None if it was never measured."""
        for record in reversed(self.records):
            if record.get(metric) is not None:
                return record["step"], record[metric]
        return None

    def values(self, metric: str) -> list[float]:
        """All values of a metric, oldest first."""
        return [record[metric] for record in self.records if record.get(metric) is not None]


def stages_of(config: dict[str, Any]) -> dict[str, int]:
    """Number of steps of each stage that a run with this config trains, in order."""
    config = with_current_keys(config)
    corpus, settings = config.get("corpus", {}), config.get("stages", {})
    tags = bool(settings.get("tagger", {}).get("train_file"))  # no other stage follows or precedes
    left_out = set(STAGES) - {"tagger"} if tags else {"tagger"}
    left_out |= set() if corpus.get("questions") else {"qa"}
    found = {name: settings.get(name, {}).get("steps", 0) for name in STAGES}
    return {name: steps for name, steps in found.items() if steps and name not in left_out}


def read_run_state(run: RunDir, *, clock: Callable[[], float] = time.time) -> RunState:
    """Reads the state of a run from its folder only, local or remote.

    Raises:
      InputError: see `read_status`.
    """
    config, logs = read_config_and_logs(run)
    now = clock()
    status = summarize(run, config, logs, now)
    state = RunState(run.root.name or str(run.workdir), stages_of(config), now=now)
    state.stage = status["stage"] or "start"
    for record in logs.get("realm" if state.stage == "done" else state.stage, []):
        state.add(record)
    state.step = max(state.step, status["step"] or 0)
    state.builder = status["builder"]
    state.refresh = read_last_refresh(run)
    state.status = status
    return state


def read_last_refresh(run: RunDir) -> dict[str, Any]:
    """Reads the record of the last finished refresh; {} if there is none."""
    return (read_log(run.logs / "index_builder.jsonl", "step") or [{}])[-1]
