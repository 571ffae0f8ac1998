"""The training state: step, params and optimizer state, created with their shardings."""

import functools
import zlib
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel import sharding
from realm_jax.parallel.program import Program


class TrainState(NamedTuple):
    """What a training step reads and writes.

    Attributes:
      step: number of finished steps.
      parameters: of the modules that the stage trains.
      optimizer: state of the optimizer.
      reference: params before the stage of the modules in `Stage.reference`, which no step changes.
    """

    step: jax.Array
    parameters: Parameters
    optimizer: Any
    reference: Parameters


def stream_key(seed: int, name: str, step: int | jax.Array = 0) -> jax.Array:
    """The random key of a named stream at a step, so that a resumed run draws the same numbers."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _number(name)), step)


def _number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def abstract_state(
    modules: Modules,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    reference: tuple[str, ...] = (),
) -> TrainState:
    """Shapes, dtypes and shardings of a state, as `jax.ShapeDtypeStruct`s; takes no memory."""

    shapes = jax.eval_shape(lambda params: _first(optimizer, reference, params), modules.shapes)
    shardings = state_shardings(modules, optimizer, mesh, shapes)
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings,
    )


def make_state(
    modules: Modules,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    params: Parameters,
    reference: tuple[str, ...] = (),
) -> TrainState:
    """Creates the first state; each device creates only its shards.

    Args:
      modules: the modules that the stage trains.
      optimizer: their optimizer.
      mesh: the devices.
      params: of exactly these modules: host arrays, or arrays on the mesh, whose memory is reused,
        so that they are deleted.
      reference: see `Stage.reference`.
    """
    like = abstract_state(modules, optimizer, mesh, reference)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, like)
    sharded = sharding.shard_arrays(params, shardings.parameters)
    return state_program(optimizer, shardings)(sharded)


def state_program(optimizer: optax.GradientTransformation, shardings: TrainState) -> Program:
    """The program from params to the state before the first step."""
    make = functools.partial(_first, optimizer, tuple(shardings.reference))
    return Program("state", make, donate_argnums=0, out_shardings=shardings)


def _first(
    optimizer: optax.GradientTransformation, reference: tuple[str, ...], params: Parameters
) -> TrainState:
    kept = {name: params[name] for name in reference}
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), kept)


def state_shardings(
    modules: Modules, optimizer: optax.GradientTransformation, mesh: Mesh, shapes: TrainState
) -> Any:
    """Shardings of a state: moments are sharded like their params, the rest is replicated."""
    params = sharding.param_shardings(mesh, modules.axes, modules.shapes)
    whole = sharding.replicated(mesh)
    moments = optax.tree.map_params(
        optimizer,
        lambda _, sharding: sharding,
        shapes.optimizer,
        params,
        transform_non_params=lambda _: whole,
    )
    reference = {name: params[name] for name in shapes.reference}
    return TrainState(cast(Any, whole), params, moments, reference)
