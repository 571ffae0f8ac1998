"""AdamW as BERT and REALM ran it (REALM_FACTS 1.4)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict


def make_optimizer(optimizer: ConfigDict, stage: ConfigDict) -> optax.GradientTransformation:
    """Global-norm clip, Adam without bias correction, decoupled decay, linear schedule."""
    return optax.chain(
        optax.clip_by_global_norm(optimizer.clip),
        _scale_by_uncorrected_adam(optimizer.b1, optimizer.b2, optimizer.eps),
        optax.add_decayed_weights(optimizer.weight_decay, mask=decayed),
        optax.scale_by_learning_rate(schedule(optimizer, stage)),
    )


def schedule(optimizer: ConfigDict, stage: ConfigDict) -> optax.Schedule:
    """Linear warm-up times a linear decay to 0 that starts at step 0, as in BERT's released code.

    After the warm-up the rates are BERT's; there are two differences before. The decay acts during
    the warm-up too, and the first step has a rate above 0. The warm-up is a share of the steps
    without BERT's least of 100, so that short stages reach their rate.
    """
    most = max(1, round(optimizer.warmup_share * stage.steps))
    warmup = min(optimizer.warmup_max_steps, most)

    def rate(step: jax.Array | int) -> jax.Array:
        left = jnp.maximum(0.0, 1.0 - step / stage.steps)
        return stage.learning_rate * left * jnp.minimum(1.0, (step + 1) / warmup)

    return rate


def decayed(parameters: Any) -> Any:
    """True on the parameters that weight decay shrinks: neither biases nor layer norms."""

    def leaf_decays(path: Any, _: Any) -> bool:
        return not path[-1].key.endswith(("bias", "scale"))

    return jax.tree_util.tree_map_with_path(leaf_decays, parameters)


class _Moments(NamedTuple):
    mu: Any
    nu: Any


def _scale_by_uncorrected_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """optax's Adam always corrects the bias of young moments; BERT's never did."""

    def init(parameters: Any) -> _Moments:
        return _Moments(optax.tree.zeros_like(parameters), optax.tree.zeros_like(parameters))

    def update(gradients: Any, moments: _Moments, _: Any = None) -> tuple[Any, _Moments]:
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, moments.mu, gradients)
        nu = jax.tree.map(lambda n, g: b2 * n + (1 - b2) * g * g, moments.nu, gradients)
        updates = jax.tree.map(lambda m, n: m / (jnp.sqrt(n) + eps), mu, nu)
        return updates, _Moments(mu, nu)

    return optax.GradientTransformation(init, update)
