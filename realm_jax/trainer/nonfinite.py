"""Detects a non-finite loss one step late and saves its batch for replay."""

import io
import json
import math
import shlex
import zipfile
import zlib
from importlib import import_module
from typing import Any

import jax
import numpy as np
from etils import epath

from realm_jax.errors import DamageError, InputError, RealmError
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir, step_name

CHECKED = ("loss", "gradient_norm")
_ZIP = b"PK"  # first bytes of an .npz file
_ABOUT = "about"  # array that holds the description of the others, as JSON bytes
_OURS = "realm_jax."
_BROKEN = (  # errors that numpy raises for damaged archives
    ValueError,
    KeyError,
    TypeError,
    OSError,
    EOFError,
    MemoryError,
    OverflowError,
    RecursionError,
    RuntimeError,  # "encrypted" or "not implemented": damaged header
    zipfile.BadZipFile,
    zlib.error,
)

REPLAYABLE = ("ict", "reader", "realm")  # stages whose batches `realm train --replay` reads


class NonFiniteDetector:
    """Checks the loss and gradient norm of each step while the devices compute the next one.

    The check waits for the devices, so at most two steps are in progress: a stop signal and the
    progress bar do not have to wait for more, and the devices always have a step to compute.
    """

    def __init__(self, run: RunDir, stage: str):
        self._run, self._stage = run, stage
        self._unchecked: tuple[int, Any, dict[str, Any]] | None = None

    def add(self, step: int, batch: Any, metrics: dict[str, Any]) -> None:
        """Checks the step before, then keeps the step just dispatched.

        Args:
          step: the step just dispatched.
          batch: its batch.
          metrics: its metrics, including `loss` and `gradient_norm`.

        Raises:
          RealmError: the loss or gradient norm of a step is not finite; its batch is saved.
        """
        self.flush()
        self._unchecked = (step, batch, metrics)

    def flush(self) -> None:
        """Waits for the last dispatched step and checks it; call it before a checkpoint.

        Raises:
          RealmError: see `add`.
        """
        if self._unchecked is not None:
            self._check(*self._unchecked)
            self._unchecked = None

    def _check(self, step: int, batch: Any, metrics: dict[str, Any]) -> None:
        values = {name: float(jax.device_get(metrics[name])) for name in CHECKED}
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if not bad:
            return
        raise RealmError(
            f"the {bad[0]} is not finite",
            where=f"stage {self._stage}, steps {step} to {step + 1}",
            expected="a finite number",
            found=f"{values[bad[0]]}; {self._saved(step, batch)}",
            fix=f"lower config.stages.{self._stage}.learning_rate; the newest checkpoint is from "
            "an earlier step",
        )

    def _saved(self, step: int, batch: Any) -> str:
        """Saves the batch and returns the command that replays it, for the error message."""
        if self._stage not in REPLAYABLE:
            return f"batches of stage {self._stage} cannot be replayed and are not saved"
        if jax.process_count() > 1:
            return "its batch is spread over several processes and was not saved"
        path = self._run.replays / f"{self._stage}_{step_name(step)}.npz"
        write_batch(path, self._stage, step, jax.device_get(batch))
        command = ["realm", "train", f"--workdir={self._run.workdir}", f"--replay={path}"]
        return f"its batch is saved: {shlex.join(command)}"


def write_batch(path: epath.Path, stage: str, step: int, batch: Any) -> None:
    """Writes a batch: nested tuples or named tuples of host arrays."""
    arrays: list[np.ndarray] = []

    def described(part: Any) -> Any:
        if hasattr(part, "_fields"):
            kind = f"{type(part).__module__}:{type(part).__name__}"
            return {"type": kind, "parts": [described(inner) for inner in part]}
        if isinstance(part, tuple):
            return [described(inner) for inner in part]
        arrays.append(np.asarray(part))
        return len(arrays) - 1

    about = json.dumps({"stage": stage, "step": step, "batch": described(batch)}).encode()
    packed = io.BytesIO()
    numbered = {f"{number:05d}": array for number, array in enumerate(arrays)}
    np.savez(packed, **{_ABOUT: np.frombuffer(about, np.uint8)}, **numbered)  # type: ignore[arg-type]
    files.write_bytes(path, packed.getvalue())


def read_batch(path: epath.PathLike) -> tuple[str, int, Any]:
    """Reads stage, step and batch from a file of `write_batch`, without unpickling.

    Raises:
      InputError: the file does not exist.
      DamageError: the file was not written by `write_batch`, or is damaged.
    """
    data = files.read_bytes(epath.Path(path))
    if data is None:
        raise InputError("no such batch", where=path, expected="a file in WORKDIR/replay")
    try:
        if not data.startswith(_ZIP):  # numpy would suggest allow_pickle=True
            raise ValueError("not an .npz archive")
        with np.load(io.BytesIO(data)) as arrays:
            about = json.loads(arrays[_ABOUT].tobytes())
            batch = _rebuilt(about["batch"], arrays)
        return str(about["stage"]), int(about["step"]), batch
    except _BROKEN as error:
        raise DamageError(
            "not a batch that was saved for replay",
            where=path,
            expected="a file that a training run wrote",
            found=f"{type(error).__name__}: {error}",
        ) from error


def _rebuilt(described: Any, arrays: Any) -> Any:
    if isinstance(described, int):
        return arrays[f"{described:05d}"]
    if isinstance(described, list):
        return tuple(_rebuilt(part, arrays) for part in described)
    module, _, name = described["type"].partition(":")
    if not module.startswith(_OURS):
        raise ValueError(f"{described['type']} is not a type of this package")
    kind = getattr(import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"{described['type']} is not a named tuple")
    return kind(*(_rebuilt(part, arrays) for part in described["parts"]))
