"""The training state: step, params and optimizer state, created with their shardings."""

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
    """What a training step reads and writes; `step` is the number of finished steps."""

    step: jax.Array
    parameters: Parameters
    optimizer: Any


def stream_key(seed: int, name: str, step: int | jax.Array = 0) -> jax.Array:
    """The random key of a named stream at a step, so that a resumed run draws the same numbers."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _number(name)), step)


def _number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def make_state(
    modules: Modules,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    seed: int,
    start_params: Parameters,
) -> TrainState:
    """Creates the first state; each device creates only its shards.

    Args:
      modules: the modules that the stage trains.
      optimizer: their optimizer.
      mesh: the devices.
      seed: the run's seed.
      start_params: params of some of the modules; the others are drawn.
    """

    def make(start_params: Parameters) -> TrainState:
        params = modules.init(stream_key(seed, "init")) | start_params
        return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    shapes = jax.eval_shape(make, start_params)
    shardings = state_shardings(modules, optimizer, mesh, shapes)
    start_shardings = {name: shardings.parameters[name] for name in start_params}
    sharded = sharding.shard_arrays(start_params, start_shardings)
    program = Program("init", make, in_shardings=(start_shardings,), out_shardings=shardings)
    return program(sharded)


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
    return TrainState(cast(Any, whole), params, moments)
