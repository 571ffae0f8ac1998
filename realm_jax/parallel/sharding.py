"""One table from axis names to mesh axes, and the shardings that follow from it."""

import logging
import math
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from realm_jax.errors import ConfigError

log = logging.getLogger(__name__)

MESH_AXES = ("data", "model")

# Models name the axes of their parameters; this table alone says where each axis lies.
RULES = {
    "vocabulary": "model",
    "mlp": "model",
    "heads": "model",
    "span": "model",
    "layers": None,
    "hidden": None,
    "head": None,
    "pooled": None,
    "transform": None,
    "embedding": None,
    "positions": None,
    "segments": None,
    "one": None,
    "shapes": None,
    "classes": None,
}


def make_mesh(sizes: ConfigDict, devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh of data x model over the devices; one size may be -1 for all that are left.

    Raises:
      ConfigError: sizes that do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    wanted = [sizes.data, sizes.model]
    known = math.prod(size for size in wanted if size > 0)
    shape = [size if size > 0 else len(devices) // known for size in wanted]
    if math.prod(shape) != len(devices) or wanted.count(-1) > 1:
        raise ConfigError(
            "the mesh does not fit the devices",
            where="config.mesh (data x model)",
            expected=f"sizes whose product is {len(devices)}, the number of devices",
            found=" x ".join(map(str, wanted)),
            fix="set one of them to -1",
        )
    return Mesh(mesh_utils.create_device_mesh(shape, devices), MESH_AXES)


def parameter_shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """Shardings of a tree of parameters.

    Args:
      mesh: of `make_mesh`.
      axes: tree of tuples of axis names, one for each parameter.
      shapes: the same tree of anything with `.shape`.
    """
    is_names = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
    return jax.tree.map(
        lambda names, leaf: NamedSharding(mesh, spec(mesh, names, leaf.shape)),
        axes,
        shapes,
        is_leaf=is_names,
    )


def spec(mesh: Mesh, names: tuple[str, ...], shape: tuple[int, ...]) -> PartitionSpec:
    """Where one parameter lies; an axis that does not divide stays whole, and the log says so."""
    placed = []
    for name, size in zip(names, shape, strict=True):
        axis = RULES[name]
        if axis is not None and size % mesh.shape[axis]:
            log.warning(
                "axis %r of size %d is not divided by mesh axis %r of %d: kept whole",
                name,
                size,
                axis,
                mesh.shape[axis],
            )
            axis = None
        placed.append(axis)
    return PartitionSpec(*placed)


def check_batches(mesh: Mesh, batches: dict[str, int]) -> None:
    """Refuses batches that the data axis does not divide.

    Args:
      mesh: of `make_mesh`.
      batches: config key to queries per step.
    """
    parts = mesh.shape["data"]
    for key, size in batches.items():
        if size % parts:
            raise ConfigError(
                "the batch does not divide over the devices",
                where=f"config.{key}",
                expected=f"a multiple of {parts}, the data axis of the mesh",
                found=size,
                fix=f"set it to {-(-size // parts) * parts}, or config.mesh.data to a divisor",
            )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Batches are split along their first axis over the data axis."""
    return NamedSharding(mesh, PartitionSpec("data"))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole value on every device."""
    return NamedSharding(mesh, PartitionSpec())
