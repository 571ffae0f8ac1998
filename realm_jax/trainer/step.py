"""The one jitted training step of all stages."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import TrainState, stream

Metrics = dict[str, Float[Array, ""]]


def make_step(
    stage: Stage, optimizer: optax.GradientTransformation, mesh: Mesh, places: TrainState, seed: int
) -> Callable[[TrainState, Any], tuple[TrainState, Metrics]]:
    """(state, batch) to (state, metrics); the state given is donated, the metrics are lazy."""

    def step(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        key = stream(seed, f"dropout/{stage.name}", state.step)

        def objective(parameters: Any) -> tuple[Array, Metrics]:
            return stage.loss(stage.modules.bind(parameters), batch, key)

        gradients, metrics = jax.grad(objective, has_aux=True)(state.parameters)
        updates, moments = optimizer.update(gradients, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        metrics |= {"gradient_norm": optax.global_norm(gradients)}
        return TrainState(state.step + 1, parameters, moments), metrics

    return jax.jit(step, donate_argnums=0, out_shardings=(places, None))
