"""Splits a batch into micro-batches inside a program, and averages what each of them gives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from realm_jax.parallel.sharding import batch_sharding


def mean_over_parts(
    function: Callable[[Any, Array | None], Any],
    batch: Any,
    weight: Callable[[Any], Float[Array, ""]],
    parts: int,
    mesh: Mesh,
) -> Any:
    """The weighted mean of `function` over the micro-batches; only one is in memory at a time.

    Args:
      function: from a micro-batch and its number to a tree of arrays. The number is None if the
        batch is not split.
      batch: tree of arrays; the first axis is sharded over the mesh.
      weight: of a micro-batch; see `Stage.weight`.
      parts: number of micro-batches.
      mesh: the devices.

    Returns:
      The tree of means, float32 if the batch is split.
    """
    if parts == 1:
        return function(batch, None)
    batches = _split(batch, parts, mesh)

    def add(total: Any, numbered: Any) -> tuple[Any, None]:
        part, number = numbered
        share = weight(part)
        scaled = jax.tree.map(lambda leaf: share * leaf, (*function(part, number), 1.0))
        return jax.tree.map(jnp.add, total, scaled), None

    first = jax.tree.map(lambda leaf: leaf[0], batches)
    shapes = jax.eval_shape(lambda part: (*function(part, jnp.int32(0)), 1.0), first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), shapes)
    (*sums, weights), _ = jax.lax.scan(add, zeros, (batches, jnp.arange(parts)))
    return jax.tree.map(lambda leaf: leaf / jnp.where(weights > 0, weights, 1.0), tuple(sums))


def _split(batch: Any, parts: int, mesh: Mesh) -> Any:
    """Micro-batch n has rows n, n + parts, ...: each device splits its own rows."""
    whole = batch_sharding(mesh)
    sharding = jax.NamedSharding(mesh, jax.P(None, *whole.spec))

    def split(leaf: Array) -> Array:
        striped = leaf.reshape(len(leaf) // parts, parts, *leaf.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(striped, sharding)

    return jax.tree.map(split, batch)
