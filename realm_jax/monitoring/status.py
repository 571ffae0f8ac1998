"""Reads the status of a run from its folder only; works while other processes write to it."""

import time
from collections.abc import Callable
from typing import Any

from realm_jax.artifacts.required import (
    index_step_of_export,
    logged_swaps,
    mean_snapshot_step,
    snapshot_step_of,
)
from realm_jax.defaults import STAGES
from realm_jax.errors import DamageError, InputError, MismatchError
from realm_jax.storage import commit, files
from realm_jax.storage.follow import end_time
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

TRAINER, BUILDER = "trainer", "index_builder"

Logs = dict[str, list[dict[str, Any]]]  # the records of each stage, oldest first


def read_status(run: RunDir, *, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Reads where both jobs of a run are.

    Returns:
      `stage` (ict, reader, realm, qa, tagger, start or done) and `step`: from the trainer's
      heartbeat or its logs, whichever is newer; `steps`: total steps of that stage;
      `heartbeat_age_s`: seconds since that record; `index_step`: step of the index that is
      searched, and `staleness_steps` = step - step of its snapshot, both null outside stages
      realm and done; `index_age_s`: seconds since the snapshot of that index; `builder`: `state`,
      `done` of `total` passages, `eta_s` and `heartbeat_age_s`; `ended`: whether the run has ended,
      and no later command, such as a fine-tuning, continues it.
      Unknown values are null.

    Raises:
      InputError: the folder holds no run, or its address cannot be read.
    """
    config, logs = read_config_and_logs(run)
    return summarize(run, config, logs, clock())


def read_config_and_logs(run: RunDir) -> tuple[dict[str, Any], Logs]:
    """Reads the config ({} while it is being written) and the log of every stage.

    Raises:
      InputError: see `read_status`.
    """
    if not (run.config.exists() or run.heartbeats.exists()):
        raise InputError("no run here", where=run.workdir, expected="a folder of `realm run`")
    config = files.read_object(run.config)
    return config, {stage: read_log(run.logs / f"{stage}.jsonl", "step") for stage in STAGES}


def summarize(run: RunDir, config: dict[str, Any], logs: Logs, now: float) -> dict[str, Any]:
    """The result of `read_status`, from a config and logs that were read before."""
    last_records = [records[-1] for records in logs.values() if records]
    newest = max(
        [last_beat(run, TRAINER) or {}, *last_records], key=lambda record: record.get("time", 0.0)
    )
    stage, step = newest.get("stage"), newest.get("step")
    index_step, snapshot_step = _searched(run, stage, step)
    stale = None if snapshot_step is None or step is None else round(step - snapshot_step, 1)
    return {
        "stage": stage,
        "step": step,
        "steps": _steps(run, config, stage),
        "index_step": index_step,
        "staleness_steps": stale,
        "index_age_s": _index_age(run, index_step, now),
        "builder": read_builder(run, now),
        "heartbeat_age_s": _age(newest, now),
        "ended": _has_ended(run, newest),
    }


def read_builder(run: RunDir, now: float) -> dict[str, Any]:
    """Reads the `builder` part of `read_status`."""
    beat = last_beat(run, BUILDER) or {}
    known = {key: beat.get(key) for key in ("state", "done", "total", "eta_s")}
    return {**known, "heartbeat_age_s": _age(beat, now)}


def _has_ended(run: RunDir, newest: dict[str, Any]) -> bool:
    """Whether the run has ended, and the newest record is not of a later fine-tuning."""
    end = end_time(run)
    return end is not None and (newest.get("stage") == "done" or newest.get("time", 0.0) <= end)


def _age(record: dict[str, Any], now: float) -> float | None:
    return round(max(now - record["time"], 0.0), 1) if "time" in record else None


def _searched(
    run: RunDir, stage: str | None, step: int | None
) -> tuple[int | None, int | float | None]:
    """The step of the searched index, and that of its snapshot: the mean over its segments."""
    if stage == "done":
        exported = index_step_of_export(run)
        found = commit.latest(run.published_index) if exported is None else exported
        manifest = _manifest(run, found)
        return found, mean_snapshot_step(manifest) if manifest else found
    if stage != "realm" or step is None:
        return None, None
    # The log of swaps runs ahead: a swap is logged when the batch of its step is prefetched.
    swaps = [record for record in logged_swaps(run) if record["step"] <= step]
    return (swaps[-1]["index_step"], snapshot_step_of(swaps[-1])) if swaps else (None, None)


def _manifest(run: RunDir, index_step: int | None) -> dict[str, Any]:
    """The manifest of an index; {} if there is none, or it is damaged, which `check` reports."""
    if index_step is None:
        return {}
    try:
        return commit.read_manifest(run.published_index / step_name(index_step)) or {}
    except (DamageError, MismatchError):
        return {}


def _index_age(run: RunDir, index_step: int | None, now: float) -> float | None:
    snapshot_time = _manifest(run, index_step).get("snapshot_time")
    return None if snapshot_time is None else round(max(now - snapshot_time, 0.0), 1)


def _steps(run: RunDir, config: dict[str, Any], stage: str | None) -> int | None:
    if stage == "done":
        stage = "realm" if commit.latest(run.tagger) is None else "tagger"
    return config.get("stages", {}).get(stage, {}).get("steps")
