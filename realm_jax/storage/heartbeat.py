"""Heartbeats: each job overwrites one small file, so that others can report its state and age."""

import os
import time
from collections.abc import Callable
from typing import Any

from realm_jax.errors import DamageError
from realm_jax.storage import files, sealed
from realm_jax.storage.layout import RunDir


def beat(run: RunDir, job: str, *, clock: Callable[[], float] = time.time, **fields: Any) -> None:
    """Writes the heartbeat of `job` (trainer, index_builder) with JSON fields such as step."""
    content = {"time": clock(), "pid": os.getpid(), **fields}
    sealed.write(run.heartbeats / f"{job}.json", content)


def last_beat(run: RunDir, job: str) -> dict[str, Any] | None:
    """The last heartbeat: time in seconds, pid and fields; None if there is no valid one.

    If several workers share a job (index_builder, index_builder-1), the newest of theirs.
    """
    return max(last_beats(run, job), key=lambda beat: beat["time"], default=None)


def last_beats(run: RunDir, job: str) -> list[dict[str, Any]]:
    """The last valid heartbeat of each worker of `job`."""
    names = [name for name in files.list_names(run.heartbeats) if name.endswith(".json")]
    ours = [name for name in names if name.removesuffix(".json").split("-")[0] == job]
    return [beat for beat in (_read(run, name) for name in ours) if beat is not None]


def _read(run: RunDir, name: str) -> dict[str, Any] | None:
    try:
        beat = sealed.read(run.heartbeats / name, time=(int, float), pid=int)
    except DamageError:
        return None  # read while it was being overwritten; the next heartbeat is complete
    known = {"stage": str, "step": int, "snapshot_step": int, "done": int}
    malformed = beat is not None and any(
        not isinstance(beat[name], kind) for name, kind in known.items() if name in beat
    )
    return None if malformed else beat
