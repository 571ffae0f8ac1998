"""What a run left in its folder, read once for report and model card."""

import json
from dataclasses import dataclass
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.defaults import STAGES
from realm_jax.errors import InputError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

Record = dict[str, Any]


@dataclass(frozen=True)
class FinishedRun:
    """A run's own records; `read_run` makes one.

    Attributes:
      folder: of the run.
      config: of the run.
      records: of each stage that has any, steps ascending; what was done again counts once.
      swaps: (training step, index step), ascending.
      refreshes: a record for each index that was built.
      export: manifest of the newest export; {} if there is none.
      index: manifest of the index that belongs to the export; {} if there is none.
      measured: what `report.json` holds; {} if nothing was measured.
    """

    folder: RunDir
    config: ConfigDict
    records: dict[str, list[Record]]
    swaps: list[tuple[int, int]]
    refreshes: list[Record]
    export: Record
    index: Record
    measured: Record

    @property
    def name(self) -> str:
        """Of the run folder."""
        return epath.Path(self.folder.workdir).resolve().name or "run"

    def course(self, stage: str, figure: str) -> list[tuple[float, float]]:
        """(step, value) of a figure, wherever it was measured."""
        found = [r for r in self.records.get(stage, []) if r.get(figure) is not None]
        return [(float(r["step"]), float(r[figure])) for r in found]

    def last(self, stage: str, figure: str) -> float | None:
        """The newest value of a figure; None if it was never measured."""
        found = self.course(stage, figure)
        return found[-1][1] if found else None

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds that each finished stage took, over all lives of the run."""
        found = {
            stage: sum(r["seconds"] for r in records if "seconds" in r)
            for stage, records in self.records.items()
        }
        return {stage: seconds for stage, seconds in found.items() if seconds}


def read_run(workdir: str) -> FinishedRun:
    """Reads a run, finished or not.

    Raises:
      InputError: no run is there.
      DamageError: names the manifest that is damaged.
    """
    run = RunDir(workdir)
    content = files.read_bytes(run.config)
    if content is None:
        raise InputError("no run here", where=workdir, expected="a folder that realm run made")
    logs = {stage: once(read_log(run.logs / f"{stage}.jsonl")) for stage in STAGES}
    export = _newest_manifest(run.export)
    index = {}
    if export:
        folder = run.published_index / step_name(export["index_step"])
        index = commit.read_manifest(folder) or {}
    return FinishedRun(
        folder=run,
        config=config_lib.from_json(content.decode(), where=run.config),
        records={stage: records for stage, records in logs.items() if records},
        swaps=[(r["step"], r["index_step"]) for r in read_log(run.swaps)],
        refreshes=once(read_log(run.logs / "index_builder.jsonl")),
        export=export,
        index=index,
        measured=_measured(run, export),
    )


def once(records: list[Record]) -> list[Record]:
    """The records without those that a later life of the run made again."""
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
    """`report.json`, if it was measured on this export."""
    try:
        found = json.loads(files.read_bytes(run.report) or b"{}")
    except ValueError:
        return {}  # torn: it is measured again
    return dict(found) if found.get("export_step") == export.get("step") else {}
