"""The batch at which a loss stopped being a number: found a step late, saved to be run again."""

import collections
import io
import json
import math
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

FIGURES = ("loss", "gradient_norm")
_ZIP = b"PK"  # how an .npz begins
_ABOUT = "about"  # array of the JSON bytes that say what the others are
_OURS = "realm_jax."
_BROKEN = (  # what damaged archives of arrays raise
    ValueError,
    KeyError,
    TypeError,
    OSError,
    EOFError,
    MemoryError,
    OverflowError,
    RecursionError,
    RuntimeError,  # "encrypted", "not implemented": a bit of a header is wrong
    zipfile.BadZipFile,
    zlib.error,
)


class NonFiniteDetector:
    """Batches of steps whose figures the devices have not given yet, oldest first.

    Nothing waits: a figure is read once it is there, and a batch is kept no longer than its step.
    """

    def __init__(self, run: RunDir, stage: str):
        self._run, self._stage = run, stage
        self._waiting: collections.deque[tuple[int, Any, dict[str, Any]]] = collections.deque()

    def note(self, step: int, batch: Any, metrics: dict[str, Any], *, wait: bool) -> None:
        """Takes a step just dispatched, and judges those before it: the ones that are done, or all.

        Args:
          step: its number.
          batch: what it was given.
          metrics: what it gives, `loss` and `gradient_norm` among them.
          wait: judges all before it, since their figures are about to be read anyway.

        Raises:
          RealmError: a figure is not finite; its batch is saved.
        """
        while self._waiting and (wait or self._is_done(self._waiting[0][2])):
            self._judge(*self._waiting.popleft())
        self._waiting.append((step, batch, metrics))

    def settle(self) -> None:
        """Judges all that was dispatched, so that what is kept next comes of finite figures."""
        while self._waiting:
            self._judge(*self._waiting.popleft())

    def _is_done(self, metrics: dict[str, Any]) -> bool:
        return all(metrics[name].is_ready() for name in FIGURES)

    def _judge(self, step: int, batch: Any, metrics: dict[str, Any]) -> None:
        figures = {name: float(jax.device_get(metrics[name])) for name in FIGURES}
        bad = [name for name, figure in figures.items() if not math.isfinite(figure)]
        if not bad:
            return
        raise RealmError(
            f"the {bad[0]} is not a finite number any more",
            where=f"stage {self._stage}, steps {step} to {step + 1}",
            expected="a finite number",
            found=f"{figures[bad[0]]}; {self._saved(step, batch)}",
            fix=f"lower config.stages.{self._stage}.learning_rate; the newest checkpoint is from "
            "before",
        )

    def _saved(self, step: int, batch: Any) -> str:
        """Where the batch is, in words."""
        if jax.process_count() > 1:
            return "its batch lies on several processes and was not saved"
        path = self._run.replays / f"{self._stage}_{step_name(step)}.npz"
        write_batch(path, self._stage, step, jax.device_get(batch))
        return f"its batch is saved: realm train --workdir={self._run.workdir} --replay={path}"


def write_batch(path: epath.Path, stage: str, step: int, batch: Any) -> None:
    """Writes a batch: tuples of host arrays, named or not, nested as they may be."""
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
    """Stage, step and batch that `write_batch` wrote; no pickle is read.

    Raises:
      InputError: there is no such file.
      DamageError: it is not one of ours.
    """
    data = files.read_bytes(epath.Path(path))
    if data is None:
        raise InputError("no such batch", where=path, expected="a file of RUN/replay")
    try:
        if not data.startswith(_ZIP):  # else numpy advises to trust pickles
            raise ValueError("no archive of arrays")
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
        raise ValueError(f"{described['type']} is no type of ours")
    kind = getattr(import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"{described['type']} is no named tuple")
    return kind(*(_rebuilt(part, arrays) for part in described["parts"]))
