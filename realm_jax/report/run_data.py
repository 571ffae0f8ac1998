"""Reads config, logs and manifests of a run folder, for report and model card."""

from dataclasses import dataclass
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from realm_jax.artifacts.index_update import newest_update
from realm_jax.artifacts.required import logged_swaps, snapshot_step_of
from realm_jax.artifacts.run_config import NO_PATHS, Paths, newest_config
from realm_jax.defaults import STAGES
from realm_jax.errors import InputError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

Record = dict[str, Any]


@dataclass(frozen=True)
class RunData:
    """Config, logs and manifests of a run; made by `read_run`.

    Attributes:
      folder: the run folder.
      config: of the run.
      records: log records by stage, steps ascending; repeated steps count once.
      swaps: (training step, mean snapshot step of the index) of each index swap, ascending.
      refreshes: a log record for each index that was built.
      export: manifest of the newest export; {} if there is none.
      index: manifest of the index of that export; {} if there is none.
      measured: content of `report.json`; {} if nothing was measured.
    """

    folder: RunDir
    config: ConfigDict
    records: dict[str, list[Record]]
    swaps: list[tuple[int, int | float]]
    refreshes: list[Record]
    export: Record
    index: Record
    measured: Record

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return epath.Path(self.folder.workdir).resolve().name or "run"

    def values(self, stage: str, metric: str) -> list[tuple[float, float]]:
        """(step, value) of every measurement of a metric."""
        found = [r for r in self.records.get(stage, []) if r.get(metric) is not None]
        return [(float(r["step"]), float(r[metric])) for r in found]

    def last(self, stage: str, metric: str) -> float | None:
        """Last value of a metric; None if it was never measured."""
        found = self.values(stage, metric)
        return found[-1][1] if found else None

    def trained_steps(self, stage: str) -> int:
        """Steps that a finished stage trained; fewer than in the config if it ended early."""
        return int(self.last(stage, "trained_steps") or self.config.stages[stage].steps)

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds that each finished stage took, over all processes that worked on it.

        Of a process that was killed, those until its last checkpoint.
        """
        found = {
            stage: sum(r["seconds"] for r in records if "seconds" in r)
            for stage, records in self.records.items()
        }
        return {stage: seconds for stage, seconds in found.items() if seconds}


def read_run(workdir: str, paths: Paths = NO_PATHS) -> RunData:
    """Reads a run; it need not be finished.

    Args:
      workdir: the run folder.
      paths: see `run_config`.

    Raises:
      InputError: the folder holds no run.
      ConfigError: see `newest_config`.
      DamageError: a manifest is damaged; names it.
    """
    run = RunDir(workdir)
    config = newest_config(run, paths)
    if config is None:
        raise InputError("no run here", where=workdir, expected="a folder of `realm run`")
    logs = {stage: _records(run, stage) for stage in STAGES}
    export = _newest_manifest(run.export)
    index = {}
    if export:
        folder = run.published_index / step_name(export["index_step"])
        index = commit.read_manifest(folder) or {}
        update = newest_update(run, export["index_step"])
        if update is not None:  # the corpus has changed since
            index = {**index, "passages": update.passages}
    return RunData(
        folder=run,
        config=config,
        records={stage: records for stage, records in logs.items() if records},
        swaps=[(r["step"], snapshot_step_of(r)) for r in logged_swaps(run)],
        refreshes=drop_repeated(read_log(run.logs / "index_builder.jsonl", "step")),
        export=export,
        index=index,
        measured=_measured(run, export),
    )


def _records(run: RunDir, stage: str) -> list[Record]:
    """The log of a stage. The last record of one that ended early is at its last trained step."""
    found = drop_repeated(read_log(run.logs / f"{stage}.jsonl", "step"))
    return [r | {"step": int(r["trained_steps"])} if "trained_steps" in r else r for r in found]


def drop_repeated(records: list[Record]) -> list[Record]:
    """Drops records that a resumed run wrote again, keeping the later ones."""
    kept: list[Record] = []
    for record in records:
        while kept and kept[-1]["step"] > record["step"]:
            kept.pop()
        kept.append(record)
    return kept


def _newest_manifest(parent: epath.Path) -> Record:
    newest = commit.latest(parent)
    return {} if newest is None else commit.read_manifest(parent / step_name(newest)) or {}


def _measured(run: RunDir, export: Record) -> Record:
    """Reads `report.json`; {} if it belongs to another export or index, or is incomplete.

    Then it is measured again.
    """
    found = files.read_object(run.report)
    if found.get("baselines", {}) is None:
        return {}
    wanted = {"export_step": export.get("step"), "index_update": commit.latest(run.index_updates)}
    return found if all(found.get(key) == value for key, value in wanted.items()) else {}
