"""What lowering needs and gives, and abstract arrays."""

from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, Sharding
from ml_collections import ConfigDict

from realm_jax.parallel.program import Program


class Target(NamedTuple):
    """The config and the devices that a program is lowered for.

    Attributes:
      config: of the run.
      mesh: the devices of the job.
      vocabulary: V.
      passages: N.
    """

    config: ConfigDict
    mesh: Mesh
    vocabulary: int
    passages: int


class LoweredProgram(NamedTuple):
    """A lowered program.

    Attributes:
      program: the name in the source code (`parallel.program`).
      lowered: to compile.
      chips: number of devices.
      rows: queries or passages per call, over all devices; 0 if there are none.
      flops: FLOPs of matrix products per call over all devices, computed from the config.
      recomputed_flops: those of them that recompute activations (`model.remat`).
      parameter_bytes: size of all parameters in float32.
      name: in the list of programs.
      job: `trainer` or `builder`.
    """

    program: str
    lowered: Any
    chips: int
    rows: int = 0
    flops: float = 0.0
    recomputed_flops: float = 0.0
    parameter_bytes: int = 0
    name: str = ""
    job: str = ""

    @property
    def useful_flops(self) -> float:
        """FLOPs without recomputation."""
        return self.flops - self.recomputed_flops


def lowered(
    program: Program, arguments: tuple[Any, ...], mesh: Mesh, **more: Any
) -> LoweredProgram:
    """Lowers a program for abstract arguments; `more` are fields of the result."""
    static = more.pop("static", {})
    return LoweredProgram(program.name, program.lower(*arguments, **static), mesh.size, **more)


def abstract(tree: Any, shardings: Any) -> Any:
    """The arrays of a tree as `jax.ShapeDtypeStruct`s; one sharding for all, or a tree of them.

    Their dtypes are those on the devices: int64 arrays of the host become int32 there.
    """
    if isinstance(shardings, Sharding):
        sharding = shardings
        shardings = jax.tree.map(lambda _: sharding, tree)

    def placed(leaf: Any, sharding: Sharding) -> jax.ShapeDtypeStruct:
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=sharding)

    return jax.tree.map(placed, tree, shardings)


def num_bytes(shapes: Any) -> int:
    """Size of all arrays of a tree, without padding."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
