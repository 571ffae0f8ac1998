"""The optimizer against AdamW in numpy, and the learning-rate schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.trainer.optimizer import decay_mask, make_optimizer, schedule

PARAMS = {
    "layers": {"up_kernel": np.ones((2, 3)), "up_bias": np.ones(3)},
    "other": {"output_norm_scale": np.ones(3), "query_bias": np.ones(3)},
    "norm": {"scale": np.ones(2), "bias": np.ones(2)},
    "bias": np.ones(4),
    "word": np.ones((4, 2)),
}
DECAYED = {"up_kernel", "word"}


def settings(steps=10, **changes):
    config = tiny_config(stages__ict__steps=steps, **changes)
    return config.optimizer, config.stages.ict


def plain_adamw(params, gradients, optimizer, rates):
    """AdamW as in BERT: no bias correction, decoupled decay, clipping by global norm."""
    updated = {}
    mu, nu = (dict.fromkeys(params, 0.0) for _ in range(2))
    for gradient, rate in zip(gradients, rates, strict=True):
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        for name, leaf in params.items():
            g = gradient[name] / max(1.0, norm / optimizer.clip)
            mu[name] = optimizer.b1 * mu[name] + (1 - optimizer.b1) * g
            nu[name] = optimizer.b2 * nu[name] + (1 - optimizer.b2) * g**2
            update = mu[name] / (np.sqrt(nu[name]) + optimizer.eps)
            if name in DECAYED:
                update = update + optimizer.weight_decay * leaf
            updated[name] = leaf - rate * update
        params = dict(updated)
    return params


def test_three_steps_equal_adamw_in_numpy():
    optimizer, stage = settings(optimizer__weight_decay=0.3)
    rng = np.random.default_rng(0)
    # The first gradient is clipped and the second is not.
    params = {"up_kernel": rng.normal(size=(2, 3)), "up_bias": rng.normal(size=3)}
    gradients = [
        {name: scale * rng.normal(size=leaf.shape) for name, leaf in params.items()}
        for scale in (5.0, 0.01, 1.0)
    ]
    transform = make_optimizer(optimizer, stage)
    trained = jax.tree.map(jnp.float32, params)
    state = transform.init(trained)
    for gradient in gradients:
        updates, state = transform.update(jax.tree.map(jnp.float32, gradient), state, trained)
        trained = optax.apply_updates(trained, updates)
    rate = schedule(optimizer, stage)
    expected = plain_adamw(params, gradients, optimizer, [float(rate(i)) for i in range(3)])
    for name, leaf in expected.items():
        np.testing.assert_allclose(trained[name], leaf, rtol=1e-5, atol=1e-6)


def test_biases_and_norms_have_no_weight_decay():
    marks = jax.tree_util.tree_leaves_with_path(decay_mask(PARAMS))
    assert {path[-1].key for path, mark in marks if mark} == DECAYED


def test_the_default_schedule_is_that_of_the_released_code():
    """At the end of the warm-up, the decay is already at 1 - warmup / steps."""
    config = config_lib.default()
    for name, peak in (("realm", 2.85e-5), ("ict", 0.9e-4)):
        rate = schedule(config.optimizer, config.stages[name])
        assert float(rate(10_000)) == pytest.approx(peak, rel=1e-4)
        assert float(rate(config.stages[name].steps)) == 0.0
        middle = config.stages[name].steps // 2
        assert float(rate(middle)) == pytest.approx(config.stages[name].learning_rate / 2)


def test_the_warm_up_is_linear_and_takes_its_share_of_the_steps():
    optimizer, stage = settings(steps=50)
    rate = schedule(optimizer, stage)
    without_decay = [float(rate(step)) / (1 - step / 50) for step in range(8)]
    expected = stage.learning_rate * np.minimum(1, np.arange(1, 9) / 5)
    np.testing.assert_allclose(without_decay, expected, rtol=1e-5)


def test_a_stage_of_one_step_has_the_peak_rate():
    optimizer, stage = settings(steps=1)
    assert float(schedule(optimizer, stage)(0)) == pytest.approx(stage.learning_rate)
