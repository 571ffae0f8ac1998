"""Training speed: steps and word pieces per second, and model FLOPs utilisation (MFU)."""

import math
import time
from typing import Any

import jax
import jax.extend
from jax.sharding import Mesh
from ml_collections import ConfigDict

# Dense bfloat16 (or float16) FLOP/s of one device, as JAX counts devices, from the data sheets.
_PEAKS = {
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "Tesla V100-SXM2-16GB": 125e12,
    "Tesla V100-SXM2-32GB": 125e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA L4": 121e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}
_BACKWARD = 2  # matrix products of the backward pass for each one of the forward pass


def peak_flops(mesh: Mesh, report: ConfigDict) -> float | None:
    """Peak FLOP/s of all devices of the mesh together; None if it is unknown."""
    devices = mesh.devices.flat
    per_device = report.peak_flops or _PEAKS.get(devices[0].device_kind)
    return per_device * len(devices) if per_device else None


class Throughput:
    """Measures training speed; time spent on evaluation and saving is excluded.

    Args:
      peak: peak FLOP/s of all devices, see `peak_flops`; None omits MFU.
    """

    def __init__(self, peak: float | None):
        self._peak, self._step_flops = peak, 0.0
        self._running_since: float | None = None
        self._seconds = 0.0

    def count_flops(self, loss: Any, *arguments: Any) -> None:
        """Counts the FLOPs of a training step whose forward pass is `loss(*arguments)`.

        Does nothing if the peak of the devices is unknown.
        """
        if self._peak is not None:
            traced = jax.make_jaxpr(loss)(*arguments)
            self._step_flops = (1 + _BACKWARD) * matmul_flops(traced.jaxpr)

    def start(self) -> None:
        """Starts the clock, if it is stopped."""
        if self._running_since is None:
            self._running_since = time.monotonic()

    def stop(self) -> None:
        """Stops the clock."""
        if self._running_since is not None:
            self._seconds += time.monotonic() - self._running_since
            self._running_since = None

    def rates(self, steps: int, tokens: float) -> dict[str, float]:
        """`steps_per_second`, `pieces_per_second` and `mfu` since the last call.

        Args:
          steps: number of steps since then.
          tokens: word pieces of all these steps together, padding excluded.
        """
        running = self._running_since is not None
        self.stop()
        seconds, self._seconds = self._seconds, 0.0
        if running:
            self.start()
        if seconds <= 0.0:
            return {}
        rates = {"steps_per_second": steps / seconds, "pieces_per_second": tokens / seconds}
        if self._peak is not None:
            rates["mfu"] = self._step_flops * steps / seconds / self._peak
        return rates


def matmul_flops(jaxpr: jax.extend.core.Jaxpr) -> float:
    """FLOPs of all matrix products in a traced function; a multiply-add counts as two."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, output = _shape(equation.invars[0]), _shape(equation.outvars[0])
            total += 2.0 * math.prod(left[axis] for axis in contracted) * math.prod(output)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_traced)
        total += times * sum(matmul_flops(_open(part)) for part in inner if _is_traced(part))
    return total


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.aval.shape)


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.extend.core.Jaxpr | jax.extend.core.ClosedJaxpr)


def _open(traced: Any) -> jax.extend.core.Jaxpr:
    return getattr(traced, "jaxpr", traced)
