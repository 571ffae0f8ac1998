"""How a run stands, read from outside: from its folder alone, wherever that lies."""

import json
import time
from collections.abc import Callable
from typing import Any

from realm_jax.defaults import STAGES
from realm_jax.errors import DamageError, InputError, MismatchError
from realm_jax.storage import commit, files
from realm_jax.storage.follow import ended
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

TRAINER, BUILDER = "trainer", "index_builder"


def read_status(run: RunDir, *, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Where both jobs of a run are.

    Returns:
      `stage` (ict, reader, realm, qa, tagger, start or done) and `step`, from the newest of the
      trainer's heartbeat and its logs; `steps` of that stage; `heartbeat_age_s`, seconds since
      then; `index_step` that the step searched, and `staleness_steps` = step - index_step, both
      null outside of stages realm and done; `index_age_s`, seconds since its snapshot was taken;
      `builder`: `state`, passages `done` of `total`, `eta_s`
      and `heartbeat_age_s`; `ended`: nothing more will come. What is unknown is null.

    Raises:
      InputError: no run is there, or its address cannot be read here.
    """
    if not (run.config.exists() or run.heartbeats.exists()):
        raise InputError("no run here", where=run.workdir, expected="a folder that realm run made")
    now = clock()
    beat = last_beat(run, TRAINER) or {}
    newest = max([beat, *_newest_records(run)], key=lambda sign: sign.get("time", 0.0))
    stage, step = newest.get("stage"), newest.get("step")
    index_step = _index_step(run, stage, step)
    return {
        "stage": stage,
        "step": step,
        "steps": _steps(run, stage),
        "index_step": index_step,
        "staleness_steps": None if index_step is None or step is None else step - index_step,
        "index_age_s": _index_age(run, index_step, now),
        "builder": read_builder(run, now),
        "heartbeat_age_s": _age(newest, now),
        "ended": ended(run),
    }


def read_builder(run: RunDir, now: float) -> dict[str, Any]:
    """The `builder` of `read_status`."""
    beat = last_beat(run, BUILDER) or {}
    known = {key: beat.get(key) for key in ("state", "done", "total", "eta_s")}
    return {**known, "heartbeat_age_s": _age(beat, now)}


def _age(sign: dict[str, Any], now: float) -> float | None:
    return round(max(now - sign["time"], 0.0), 1) if "time" in sign else None


def _index_step(run: RunDir, stage: str | None, step: int | None) -> int | None:
    if stage == "done":
        newest = commit.latest(run.export)
        manifest = newest is not None and commit.read_manifest(run.export / step_name(newest))
        return manifest["index_step"] if manifest else commit.latest(run.published_index)
    if stage != "realm" or step is None:
        return None
    # The swap of a step is logged when its batch is drawn, which is ahead of the step itself.
    swaps = [record for record in read_log(run.swaps) if record["step"] <= step]
    return swaps[-1]["index_step"] if swaps else None


def _index_age(run: RunDir, index_step: int | None, now: float) -> float | None:
    if index_step is None:
        return None
    try:
        manifest = commit.read_manifest(run.published_index / step_name(index_step))
    except (DamageError, MismatchError):
        return None  # `realm check` says what is wrong with it
    taken = (manifest or {}).get("snapshot_time")
    return None if taken is None else round(max(now - taken, 0.0), 1)


def _steps(run: RunDir, stage: str | None) -> int | None:
    try:
        config = json.loads(files.read_bytes(run.config) or b"{}")
    except ValueError:
        return None  # met while it was being written
    if stage == "done":
        stage = "realm" if commit.latest(run.tagger) is None else "tagger"
    return config.get("stages", {}).get(stage, {}).get("steps")


def _newest_records(run: RunDir) -> list[dict[str, Any]]:
    return [line for stage in STAGES for line in read_log(run.logs / f"{stage}.jsonl")[-1:]]
