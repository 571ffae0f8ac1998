"""What training changes: parameters and optimiser state, made where they will lie."""

import zlib
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel import sharding


class TrainState(NamedTuple):
    """Everything a step reads and writes; `step` counts finished steps."""

    step: jax.Array
    parameters: Parameters
    optimizer: Any


def stream_key(seed: int, name: str, step: int | jax.Array = 0) -> jax.Array:
    """The random key of a named stream at a step; nothing is carried, so resumed runs repeat it."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _number(name)), step)


def _number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def make_state(
    modules: Modules,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    seed: int,
    given: Parameters,
) -> TrainState:
    """Fresh state; networks in `given` start from those parameters, the others are drawn.

    Shapes first, then shardings, then the arrays: nothing large is ever whole on one device.
    """

    def make(given: Parameters) -> TrainState:
        parameters = modules.init(stream_key(seed, "init")) | given
        return TrainState(jnp.zeros((), jnp.int32), parameters, optimizer.init(parameters))

    shapes = jax.eval_shape(make, given)
    places = state_shardings(modules, optimizer, mesh, shapes)
    start = {name: places.parameters[name] for name in given}
    placed = sharding.shard_arrays(given, start)
    return jax.jit(make, in_shardings=(start,), out_shardings=places)(placed)


def state_shardings(
    modules: Modules, optimizer: optax.GradientTransformation, mesh: Mesh, shapes: TrainState
) -> Any:
    """Shardings of a state: moments lie where their parameters lie, the rest is replicated."""
    of_parameters = sharding.param_shardings(mesh, modules.axes, modules.shapes)
    whole = sharding.replicated(mesh)
    moments = optax.tree.map_params(
        optimizer,
        lambda _, place: place,
        shapes.optimizer,
        of_parameters,
        transform_non_params=lambda _: whole,
    )
    return TrainState(cast(Any, whole), of_parameters, moments)
