"""Connects the devices of a mesh before the first program of the job runs.

Gloo and NCCL connect a group of devices when a program first communicates over it, and fail if a
process of the group comes too late: Gloo waits 30 s. At the first training step, processes are
often further apart, because one finds the program in the compilation cache and another compiles it.
"""

import itertools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from realm_jax.parallel import hosts
from realm_jax.parallel.program import Program


def connect(mesh: Mesh) -> None:
    """Connects all groups of devices that programs on this mesh communicate over.

    Every process calls it with the same mesh.
    """
    if hosts.process_count() > 1:
        hosts.all_gather("connect", 0)  # from here on, the processes are close together
        jax.block_until_ready(connect_program(mesh)())


def connect_program(mesh: Mesh) -> Program:
    """A program that sums over each combination of mesh axes."""
    axes = [axis for axis in mesh.axis_names if mesh.shape[axis] > 1]
    groups = [
        group for count in range(1, len(axes) + 1) for group in itertools.combinations(axes, count)
    ]

    def sums() -> list[jax.Array]:
        number = jnp.float32(jax.lax.axis_index(tuple(mesh.axis_names)))
        return [jax.lax.psum(number, group)[None] for group in groups]

    everywhere = PartitionSpec(tuple(mesh.axis_names))
    return Program("connect", jax.shard_map(sums, mesh=mesh, in_specs=(), out_specs=everywhere))
