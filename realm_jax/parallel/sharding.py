"""The device mesh, and the shardings of params and batches on it."""

import functools
import logging
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.errors import ConfigError
from realm_jax.parallel.program import Program

log = logging.getLogger(__name__)

MESH_AXES = ("replica", "data", "fsdp", "model")
BATCH = ("replica", "data", "fsdp")  # mesh axes over which the rows of a batch are sharded

# Axis name of a param -> mesh axis. Models name the axes of their params; only this table assigns
# them to mesh axes. Params on `fsdp` are all-gathered layer by layer where they are used, and their
# gradients are reduce-scattered.
RULES = {
    "vocabulary": "model",
    "mlp": "model",
    "heads": "model",
    "span": "model",
    "hidden": "fsdp",
    "layers": None,
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


def make_mesh(sizes: ConfigDict, devices: Sequence[Any] | None = None) -> Mesh:
    """Creates a mesh of replica x data x fsdp x model.

    With several TPU slices, only `replica` crosses the slow network between slices. Within a slice,
    neighbours on the last axes are the nearest devices.

    Args:
      sizes: size by mesh axis; one may be -1, for all remaining devices.
      devices: all devices by default.

    Raises:
      ConfigError: the product of the sizes is not the number of devices, or `replica` is not a
        multiple of the number of slices.
    """
    devices = jax.devices() if devices is None else devices
    requested = [sizes[axis] for axis in MESH_AXES]
    known = math.prod(size for size in requested if size > 0)
    shape = [size if size > 0 else len(devices) // known for size in requested]
    if math.prod(shape) != len(devices) or requested.count(-1) > 1:
        raise ConfigError(
            "the mesh does not fit the devices",
            where=f"config.mesh ({' x '.join(MESH_AXES)})",
            expected=f"sizes whose product is {len(devices)}, the number of devices",
            found=" x ".join(map(str, requested)),
            fix="set one of them to -1",
        )
    automatic = (AxisType.Auto,) * len(MESH_AXES)  # XLA propagates shardings; none is in the types
    return Mesh(_device_array(shape, devices), MESH_AXES, axis_types=automatic)


def _device_array(shape: list[int], devices: Sequence[Any]) -> np.ndarray:
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        return mesh_utils.create_device_mesh(shape, devices)
    if shape[0] % slices:
        raise ConfigError(
            "the mesh does not fit the slices",
            where="config.mesh.replica",
            expected=f"a multiple of {slices}, the number of slices",
            found=shape[0],
            fix=f"set it to {slices}",
        )
    inside, across = [shape[0] // slices, *shape[1:]], [slices, *[1] * (len(shape) - 1)]
    return mesh_utils.create_hybrid_device_mesh(inside, across, devices)


def one_device_mesh() -> Mesh:
    """A mesh of the first device of this process, for programs that need no other."""
    shape = (1,) * len(MESH_AXES)
    devices = np.array(jax.local_devices()[:1]).reshape(shape)
    return Mesh(devices, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def local_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with one axis, `rows`, for programs in which each device has its rows.

    Args:
      devices: all devices of this process by default.
    """
    devices = jax.local_devices() if devices is None else devices
    return Mesh(np.array(devices), ("rows",), axis_types=(AxisType.Auto,))


def param_shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """Shardings of a params tree.

    Args:
      mesh: the mesh, of `make_mesh`.
      axes: tree of tuples of axis names, one tuple per param.
      shapes: the same tree, of arrays or anything else with `.shape`.
    """
    is_names = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
    return jax.tree.map(
        lambda names, leaf: NamedSharding(mesh, partition_spec(mesh, names, leaf.shape)),
        axes,
        shapes,
        is_leaf=is_names,
    )


def partition_spec(mesh: Mesh, names: tuple[str, ...], shape: tuple[int, ...]) -> PartitionSpec:
    """The partition of one param; an axis that the mesh axis does not divide is replicated."""
    partition = []
    for name, size in zip(names, shape, strict=True):
        axis = RULES[name]
        if axis is not None and size % mesh.shape[axis]:
            log.warning(
                "axis %r of size %d is not divisible by mesh axis %r of size %d: replicated",
                name,
                size,
                axis,
                mesh.shape[axis],
            )
            axis = None
        partition.append(axis)
    return PartitionSpec(*partition)


def shard_arrays(tree: Any, shardings: Any) -> Any:
    """Puts host arrays on the devices; each device receives only its shard.

    Args:
      tree: host arrays, the same in every process. Arrays that have their sharding already stay.
      shardings: the same tree of shardings.
    """

    def shard(leaf: Any, sharding: Sharding) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        part = lambda index: np.asarray(leaf)[index]  # noqa: E731
        return jax.make_array_from_callback(np.shape(leaf), sharding, part)

    return jax.tree.map(shard, tree, shardings)


def local_rows(mesh: Mesh, batch: int) -> Int64[np.ndarray, "R"]:
    """Rows of a batch that the devices of this process hold, ascending.

    Args:
      mesh: the mesh, of `make_mesh`.
      batch: rows of the batch in all processes together.
    """
    indices = batch_sharding(mesh).addressable_devices_indices_map((batch,))
    slices = {index[0].indices(batch) for index in indices.values() if index is not None}
    return np.concatenate([np.arange(*bounds) for bounds in sorted(slices)])


def shard_batch(mesh: Mesh, arrays: Any, rows: Int64[np.ndarray, "R"], batch: int) -> Any:
    """Puts a batch on the devices of all processes; each process has built only its own rows.

    Args:
      mesh: the mesh, of `make_mesh`.
      arrays: tree of host arrays; the first axis holds `rows`, or groups of consecutive rows.
      rows: the rows of this process, of `local_rows`.
      batch: rows of the batch in all processes together.
    """
    sharding = batch_sharding(mesh)

    def shard(leaf: np.ndarray) -> jax.Array:
        group_size = len(rows) // len(leaf)
        local_index = np.full(batch // group_size, -1)
        local_index[rows[::group_size] // group_size] = np.arange(len(leaf))
        part = lambda index: leaf[local_index[index[0]]][(slice(None), *index[1:])]  # noqa: E731
        shape = (batch // group_size, *leaf.shape[1:])
        return jax.make_array_from_callback(shape, sharding, part)

    return jax.tree.map(shard, arrays)


def gather_to_host(mesh: Mesh, tree: Any) -> Any:
    """Whole arrays on the host of every process; all processes must call it.

    Arrays are gathered one after the other, so no device holds more than one whole array.
    """
    gather = gather_program(mesh)

    def fetch(leaf: Any) -> np.ndarray:
        is_local = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
        return np.asarray(leaf if is_local else gather(leaf))

    return jax.tree.map(fetch, tree)


@functools.cache
def gather_program(mesh: Mesh) -> Program:
    """One program for a mesh, so that each shape is compiled once in a process."""
    return Program("gather", lambda leaf: leaf, out_shardings=replicated(mesh))


def check_batches(mesh: Mesh, batches: dict[str, int], micro_batches: int = 1) -> None:
    """Checks that the batches divide evenly over the devices.

    Args:
      mesh: the mesh, of `make_mesh`.
      batches: queries per step, by config key.
      micro_batches: `config.optimizer.accumulate_steps`.

    Raises:
      ConfigError: a batch does not divide.
    """
    parts = _num_parts(mesh, micro_batches)
    for key, size in batches.items():
        if size % parts:
            raise ConfigError(
                "the batch does not divide over the devices",
                where=f"config.{key}",
                expected=f"a multiple of {parts}: mesh axes {' x '.join(BATCH)}, times "
                "optimizer.accumulate_steps",
                found=size,
                fix=f"set it to {-(-size // parts) * parts}, or make config.mesh.model larger",
            )


def packing_groups(mesh: Mesh, config: ConfigDict) -> int:
    """G, the number of groups in which the rows of a batch are packed (`data.packing`).

    Raises:
      ConfigError: `config.mesh.groups` does not divide over the devices, or does not divide the
        batches.
    """
    parts, requested = _num_parts(mesh, config.optimizer.accumulate_steps), config.mesh.groups
    stages = [config.stages[name] for name in ("reader", "ict", "realm")]
    batches = [stage.batch for stage in stages if stage.steps]
    if requested % parts or any(batch % (requested or parts) for batch in batches):
        raise ConfigError(
            "the groups do not fit the devices and batches",
            where="config.mesh.groups",
            expected=f"0, or a multiple of {parts} that divides {' and '.join(map(str, batches))}",
            found=requested,
        )
    return requested or parts


def _num_parts(mesh: Mesh, micro_batches: int) -> int:
    return math.prod(mesh.shape[axis] for axis in BATCH) * micro_batches


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The first axis is sharded over replica x data x fsdp."""
    return NamedSharding(mesh, PartitionSpec(BATCH))


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())
