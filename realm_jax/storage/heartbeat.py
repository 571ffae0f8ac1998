"""Signs of life: each job overwrites one small file, and the other reports its age."""

import os
import time
from collections.abc import Callable
from typing import Any

from realm_jax.errors import DamageError
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir


def beat(run: RunDir, job: str, *, clock: Callable[[], float] = time.time, **fields: Any) -> None:
    """Writes the sign of life of `job` (trainer, index_builder), with JSON fields like step."""
    content = {"time": clock(), "pid": os.getpid(), **fields}
    files.write_sealed(run.heartbeats / f"{job}.json", content)


def last_beat(run: RunDir, job: str) -> dict[str, Any] | None:
    """The last sign of life: time in seconds, pid and fields; None if there is no whole one.

    Of several workers at one job, as in index_builder-a, the newest.
    """
    names = [name for name in files.list_names(run.heartbeats) if name.endswith(".json")]
    ours = [name for name in names if name.removesuffix(".json").split("-")[0] == job]
    beats = [beat for beat in (_read(run, name) for name in ours) if beat is not None]
    return max(beats, key=lambda beat: beat["time"], default=None)


def _read(run: RunDir, name: str) -> dict[str, Any] | None:
    try:
        beat = files.read_sealed(run.heartbeats / name, time=(int, float), pid=int)
    except DamageError:
        return None  # met while it was being overwritten; the next beat is whole again
    known = {"stage": str, "step": int}
    odd = beat is not None and any(
        not isinstance(beat[name], kind) for name, kind in known.items() if name in beat
    )
    return None if odd else beat
