"""One table from axis names to mesh axes, and the shardings that follow from it."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from realm_jax.errors import ConfigError

log = logging.getLogger(__name__)

MESH_AXES = ("replica", "data", "fsdp", "model")
BATCH = ("replica", "data", "fsdp")  # mesh axes over which the rows of a batch are spread

# Models name the axes of their parameters; this table alone says where each axis lies. Whatever is
# on `fsdp` is gathered where it is used, layer by layer, and its gradient is scattered again.
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
    """A mesh of replica x data x fsdp x model; one size may be -1 for all devices that are left.

    Devices of several TPU slices are laid so that `replica` alone crosses the slow network between
    them. Otherwise neighbours on the last axes are nearest to each other.

    Raises:
      ConfigError: sizes that do not multiply to the number of devices, or slices that `replica`
        does not count.
    """
    devices = jax.devices() if devices is None else devices
    wanted = [sizes[axis] for axis in MESH_AXES]
    known = math.prod(size for size in wanted if size > 0)
    shape = [size if size > 0 else len(devices) // known for size in wanted]
    if math.prod(shape) != len(devices) or wanted.count(-1) > 1:
        raise ConfigError(
            "the mesh does not fit the devices",
            where=f"config.mesh ({' x '.join(MESH_AXES)})",
            expected=f"sizes whose product is {len(devices)}, the number of devices",
            found=" x ".join(map(str, wanted)),
            fix="set one of them to -1",
        )
    return Mesh(_laid_out(shape, devices), MESH_AXES)


def _laid_out(shape: list[int], devices: Sequence[Any]) -> np.ndarray:
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


def param_shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """Shardings of a tree of parameters.

    Args:
      mesh: of `make_mesh`.
      axes: tree of tuples of axis names, one for each parameter.
      shapes: the same tree of anything with `.shape`.
    """
    is_names = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
    return jax.tree.map(
        lambda names, leaf: NamedSharding(mesh, partition_spec(mesh, names, leaf.shape)),
        axes,
        shapes,
        is_leaf=is_names,
    )


def partition_spec(mesh: Mesh, names: tuple[str, ...], shape: tuple[int, ...]) -> PartitionSpec:
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


def shard_arrays(tree: Any, shardings: Any) -> Any:
    """Host arrays onto the mesh; each device is sent its own part and no other.

    Args:
      tree: host arrays, the same in every process.
      shardings: the same tree of shardings.
    """
    return jax.tree.map(
        lambda leaf, to: jax.make_array_from_callback(
            np.shape(leaf), to, lambda index: np.asarray(leaf)[index]
        ),
        tree,
        shardings,
    )


def local_rows(mesh: Mesh, batch: int) -> np.ndarray:
    """Places in a batch of `batch` rows that the devices of this process hold, ascending."""
    spread = batch_sharding(mesh).addressable_devices_indices_map((batch,))
    slices = {index[0].indices(batch) for index in spread.values() if index is not None}
    return np.concatenate([np.arange(*bounds) for bounds in sorted(slices)])


def shard_batch(mesh: Mesh, rows: Any, places: np.ndarray, batch: int) -> Any:
    """A batch over all processes, of which this one has made the rows at `places`.

    Args:
      mesh: of `make_mesh`.
      rows: tree of host arrays, first axis as long as `places`, or as the groups of equal size
        that neighbouring places are in.
      places: of `local_rows`.
      batch: rows of all processes together.
    """
    to = batch_sharding(mesh)

    def placed(leaf: np.ndarray) -> jax.Array:
        size = len(places) // len(leaf)
        where = np.full(batch // size, -1)
        where[places[::size] // size] = np.arange(len(leaf))
        part = lambda index: leaf[where[index[0]]][(slice(None), *index[1:])]  # noqa: E731
        return jax.make_array_from_callback((batch // size, *leaf.shape[1:]), to, part)

    return jax.tree.map(placed, rows)


def gather_to_host(mesh: Mesh, tree: Any) -> Any:
    """Whole arrays on the host of every process; all processes must call it.

    One array after the other passes through the devices, so no device holds them all.
    """
    whole = jax.jit(lambda leaf: leaf, out_shardings=replicated(mesh))

    def fetched(leaf: Any) -> np.ndarray:
        alone = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
        return np.asarray(leaf if alone else whole(leaf))

    return jax.tree.map(fetched, tree)


def check_batches(mesh: Mesh, batches: dict[str, int], micro_batches: int = 1) -> None:
    """Refuses batches that the devices cannot share evenly.

    Args:
      mesh: of `make_mesh`.
      batches: config key to queries per step.
      micro_batches: `config.optimizer.accumulate_steps`.
    """
    parts = _parts(mesh, micro_batches)
    for key, size in batches.items():
        if size % parts:
            raise ConfigError(
                "the batch does not divide over the devices",
                where=f"config.{key}",
                expected=f"a multiple of {parts}: mesh axes {' x '.join(BATCH)}, times "
                "optimizer.accumulate_steps",
                found=size,
                fix=f"set it to {-(-size // parts) * parts}, or give config.mesh.model more",
            )


def packing_groups(mesh: Mesh, config: ConfigDict) -> int:
    """G, into which batches are cut that are packed (`data.packing`).

    Raises:
      ConfigError: `config.mesh.groups` does not divide over the devices, or divide the batches.
    """
    parts, asked = _parts(mesh, config.optimizer.accumulate_steps), config.mesh.groups
    batches = [config.stages[n].batch for n in ("ict", "realm") if config.stages[n].steps]
    if asked % parts or any(batch % (asked or parts) for batch in batches):
        raise ConfigError(
            "the groups do not fit devices and batches",
            where="config.mesh.groups",
            expected=f"0, or a multiple of {parts} that divides {' and '.join(map(str, batches))}",
            found=asked,
        )
    return asked or parts


def _parts(mesh: Mesh, micro_batches: int) -> int:
    return math.prod(mesh.shape[axis] for axis in BATCH) * micro_batches


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Batches are split along their first axis over replica x data x fsdp."""
    return NamedSharding(mesh, PartitionSpec(BATCH))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole value on every device."""
    return NamedSharding(mesh, PartitionSpec())
