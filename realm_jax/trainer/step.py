"""The jitted training step of all stages."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from realm_jax.models.modules import Parameters
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import replicated
from realm_jax.trainer.micro_batches import mean_over_parts
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
) -> Program:
    """Creates the program (state, batch) -> (state, metrics), which donates the state.

    Args:
      stage: provides the loss.
      optimizer: of `make_optimizer`.
      mesh: the devices.
      shardings: shardings of the state.
      seed: the run's seed, for dropout.
      parts: number of micro-batches; their gradients are accumulated in float32.
    """

    def gradients_of(state: TrainState, batch: Any, key: Key[Array, ""]) -> Any:
        def objective(params: Parameters) -> tuple[Array, Metrics]:
            with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
                return stage.loss(stage.modules.bind(params, state.reference), batch, key)

        return jax.grad(objective, has_aux=True)(state.parameters)

    def step(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        key = stream_key(seed, f"dropout/{stage.name}", state.step)

        def of_part(part: Any, number: Array | None) -> Any:
            part_key = key if number is None else jax.random.fold_in(key, number)
            return gradients_of(state, part, part_key)

        gradients, metrics = mean_over_parts(of_part, batch, stage.weight, parts, mesh)
        updates, moments = optimizer.update(gradients, state.optimizer, state.parameters)
        params = optax.apply_updates(state.parameters, updates)
        metrics |= {"gradient_norm": optax.tree.norm(gradients)}
        return TrainState(state.step + 1, params, moments, state.reference), metrics

    outputs = (shardings, replicated(mesh))
    return Program(f"{stage.name}/train", step, donate_argnums=0, out_shardings=outputs)
