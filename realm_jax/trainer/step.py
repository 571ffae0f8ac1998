"""The jitted training step of all stages."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from realm_jax.models.modules import Parameters
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import batch_sharding, replicated
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import TrainState, stream_key

Metrics = dict[str, Float[Array, ""]]
StepFunction = Callable[[TrainState, Any], tuple[TrainState, Metrics]]


def make_step(
    stage: Stage,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    shardings: TrainState,
    seed: int,
    parts: int = 1,
) -> StepFunction:
    """Creates the function (state, batch) -> (state, metrics).

    The function donates the state and does not wait for the devices.

    Args:
      stage: provides the loss.
      optimizer: of `make_optimizer`.
      mesh: the devices.
      shardings: shardings of the state.
      seed: the run's seed, for dropout.
      parts: number of micro-batches; their gradients are accumulated in float32.
    """

    def gradients_of(params: Parameters, batch: Any, key: Key[Array, ""]) -> Any:
        def objective(params: Parameters) -> tuple[Array, Metrics]:
            with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
                return stage.loss(stage.modules.bind(params), batch, key)

        return jax.grad(objective, has_aux=True)(params)

    def step(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        key = stream_key(seed, f"dropout/{stage.name}", state.step)
        if parts == 1:
            gradients, metrics = gradients_of(state.parameters, batch, key)
        else:
            of_part = _split(batch, parts, mesh)
            gradients, metrics = _accumulated(
                lambda part, number: gradients_of(
                    state.parameters, part, jax.random.fold_in(key, number)
                ),
                of_part,
                stage.weight,
                parts,
            )
        updates, moments = optimizer.update(gradients, state.optimizer, state.parameters)
        params = optax.apply_updates(state.parameters, updates)
        metrics |= {"gradient_norm": optax.global_norm(gradients)}
        return TrainState(state.step + 1, params, moments), metrics

    outputs = (shardings, replicated(mesh))
    return Program(f"{stage.name}/train", step, donate_argnums=0, out_shardings=outputs)


def _split(batch: Any, parts: int, mesh: Mesh) -> Any:
    """Micro-batch n has rows n, n + parts, ...: each device splits its own rows."""
    whole = batch_sharding(mesh)
    sharding = jax.NamedSharding(mesh, jax.P(None, *whole.spec))

    def split(leaf: Array) -> Array:
        striped = leaf.reshape(len(leaf) // parts, parts, *leaf.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(striped, sharding)

    return jax.tree.map(split, batch)


def _accumulated(
    gradients_of: Callable[[Any, Array], Any],
    batches: Any,
    weight: Callable[[Any], Float[Array, ""]],
    parts: int,
) -> Any:
    """Weighted means of gradients and metrics over the micro-batches."""

    def add(total: Any, numbered: Any) -> tuple[Any, None]:
        part, number = numbered
        share = weight(part)
        scaled = jax.tree.map(lambda leaf: share * leaf, (*gradients_of(part, number), 1.0))
        return jax.tree.map(jnp.add, total, scaled), None

    first = jax.tree.map(lambda leaf: leaf[0], batches)
    shapes = jax.eval_shape(lambda part: (*gradients_of(part, jnp.int32(0)), 1.0), first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), shapes)
    (gradients, metrics, weights), _ = jax.lax.scan(add, zeros, (batches, jnp.arange(parts)))
    return jax.tree.map(lambda leaf: leaf / weights, (gradients, metrics))
