"""AdamW as in the released code of BERT and REALM, without bias correction."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict


def make_optimizer(optimizer: ConfigDict, stage: ConfigDict) -> optax.GradientTransformation:
    """Clips by global norm, then Adam without bias correction, weight decay, linear schedule."""
    return optax.chain(
        optax.clip_by_global_norm(optimizer.clip),
        _scale_by_uncorrected_adam(optimizer.b1, optimizer.b2, optimizer.eps),
        optax.add_decayed_weights(optimizer.weight_decay, mask=decay_mask),
        optax.scale_by_learning_rate(schedule(optimizer, stage)),
    )


def schedule(optimizer: ConfigDict, stage: ConfigDict) -> optax.Schedule:
    """Learning rate: linear warm-up times a linear decay to 0 that starts at step 0.

    After the warm-up, the rates are those of BERT's released code. During the warm-up they differ:
    BERT applies no decay, starts at rate 0 and warms up for at least 100 steps. Here, short stages
    also reach their peak rate.
    """
    share = max(1, round(optimizer.warmup_share * stage.steps))
    warmup = min(optimizer.warmup_max_steps, share)

    def rate(step: jax.Array | int) -> jax.Array:
        remaining = jnp.maximum(0.0, 1.0 - step / stage.steps)
        return stage.learning_rate * remaining * jnp.minimum(1.0, (step + 1) / warmup)

    return rate


def decay_mask(params: Any) -> Any:
    """Mask of the params with weight decay: all but biases and layer norms."""

    def leaf_decays(path: Any, _: Any) -> bool:
        return not path[-1].key.endswith(("bias", "scale"))

    return jax.tree_util.tree_map_with_path(leaf_decays, params)


class _Moments(NamedTuple):
    mu: Any
    nu: Any


def _scale_by_uncorrected_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Adam without bias correction, which optax does not offer."""

    def init(params: Any) -> _Moments:
        return _Moments(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(gradients: Any, moments: _Moments, _: Any = None) -> tuple[Any, _Moments]:
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, moments.mu, gradients)
        nu = jax.tree.map(lambda n, g: b2 * n + (1 - b2) * g * g, moments.nu, gradients)
        updates = jax.tree.map(lambda m, n: m / (jnp.sqrt(n) + eps), mu, nu)
        return updates, _Moments(mu, nu)

    return optax.GradientTransformation(init, update)
