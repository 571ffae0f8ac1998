"""How fast a stage trains: real word pieces a second, and the share of the peak."""

import math
import time
from typing import Any

import jax
import jax.extend
from jax.sharding import Mesh
from ml_collections import ConfigDict

# Dense bfloat16 (or float16) products a second that makers state for one device as jax counts them.
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
_BACKWARD = 2  # a gradient takes two products for each one of the forward pass


def peak_flops(mesh: Mesh, report: ConfigDict) -> float | None:
    """Floating-point operations a second that all devices of the mesh could do; None: not known."""
    devices = mesh.devices.flat
    of_one = report.peak_flops or _PEAKS.get(devices[0].device_kind)
    return of_one * len(devices) if of_one else None


class Speed:
    """A stopwatch that stands still while a run evaluates or saves.

    Args:
      peak: see `peak_flops`.
    """

    def __init__(self, peak: float | None):
        self._peak, self._flops = peak, 0.0
        self._since: float | None = None
        self._seconds = 0.0

    def one_step(self, loss: Any, *arguments: Any) -> None:
        """Counts the products in a step whose forward pass is `loss(*arguments)`.

        They are not counted where there is nothing to compare them with.
        """
        if self._peak is not None:
            traced = jax.make_jaxpr(loss)(*arguments)
            self._flops = (1 + _BACKWARD) * products(traced.jaxpr)

    def start(self) -> None:
        """Goes on, if it stands."""
        if self._since is None:
            self._since = time.monotonic()

    def stop(self) -> None:
        """Stands still."""
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = None

    def figures(self, steps: int, pieces: float) -> dict[str, float]:
        """Speeds over `steps` of `pieces` real word pieces in all, done since it was last asked."""
        going = self._since is not None
        self.stop()
        seconds, self._seconds = self._seconds, 0.0
        if going:
            self.start()
        if seconds <= 0.0:
            return {}
        found = {"steps_per_second": steps / seconds, "pieces_per_second": pieces / seconds}
        if self._peak is not None:
            found["mfu"] = self._flops * steps / seconds / self._peak
        return found


def products(jaxpr: jax.extend.core.Jaxpr) -> float:
    """Floating-point operations of all matrix products in a traced function, two a multiply-add."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape, made = _shape(equation.invars[0]), _shape(equation.outvars[0])
            total += 2.0 * math.prod(shape[axis] for axis in contracted) * math.prod(made)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_traced)
        total += times * sum(products(_open(part)) for part in inner if _is_traced(part))
    return total


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.aval.shape)


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.extend.core.Jaxpr | jax.extend.core.ClosedJaxpr)


def _open(traced: Any) -> jax.extend.core.Jaxpr:
    return getattr(traced, "jaxpr", traced)
