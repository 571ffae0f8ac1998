"""The optimiser against AdamW written out in numpy, and the schedule at the points that matter."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.trainer.optimizer import decayed, make_optimizer, schedule

PARAMETERS = {
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


def plain_adamw(parameters, gradients, optimizer, rates):
    """AdamW as BERT ran it: no bias correction, decay beside the moments, clip by global norm."""
    found = {}
    mu, nu = (dict.fromkeys(parameters, 0.0) for _ in range(2))
    for gradient, rate in zip(gradients, rates, strict=True):
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        for name, leaf in parameters.items():
            g = gradient[name] / max(1.0, norm / optimizer.clip)
            mu[name] = optimizer.b1 * mu[name] + (1 - optimizer.b1) * g
            nu[name] = optimizer.b2 * nu[name] + (1 - optimizer.b2) * g**2
            update = mu[name] / (np.sqrt(nu[name]) + optimizer.eps)
            if name in DECAYED:
                update = update + optimizer.weight_decay * leaf
            found[name] = leaf - rate * update
        parameters = dict(found)
    return parameters


def test_three_steps_equal_adamw_in_numpy():
    optimizer, stage = settings(optimizer__weight_decay=0.3)
    rng = np.random.default_rng(0)
    # Of these gradients the first is clipped and the second is not.
    parameters = {"up_kernel": rng.normal(size=(2, 3)), "up_bias": rng.normal(size=3)}
    gradients = [
        {name: scale * rng.normal(size=leaf.shape) for name, leaf in parameters.items()}
        for scale in (5.0, 0.01, 1.0)
    ]
    transform = make_optimizer(optimizer, stage)
    mine = jax.tree.map(jnp.float32, parameters)
    state = transform.init(mine)
    for gradient in gradients:
        updates, state = transform.update(jax.tree.map(jnp.float32, gradient), state, mine)
        mine = optax.apply_updates(mine, updates)
    rate = schedule(optimizer, stage)
    expected = plain_adamw(parameters, gradients, optimizer, [float(rate(i)) for i in range(3)])
    for name, leaf in expected.items():
        np.testing.assert_allclose(mine[name], leaf, rtol=1e-5, atol=1e-6)


def test_decay_spares_biases_and_norms():
    marks = jax.tree_util.tree_leaves_with_path(decayed(PARAMETERS))
    assert {path[-1].key for path, mark in marks if mark} == DECAYED


def test_schedule_of_the_published_runs():
    """REALM_FACTS 1.4: at the end of the warm-up the rate is lr (1 - warm / total) already."""
    config = config_lib.default()
    for name, peak in (("realm", 2.85e-5), ("ict", 0.9e-4)):
        rate = schedule(config.optimizer, config.stages[name])
        assert float(rate(10_000)) == pytest.approx(peak, rel=1e-4)
        assert float(rate(config.stages[name].steps)) == 0.0
        middle = config.stages[name].steps // 2
        assert float(rate(middle)) == pytest.approx(config.stages[name].learning_rate / 2)


def test_warm_up_rises_evenly_and_never_lasts_more_than_its_share():
    optimizer, stage = settings(steps=50)
    rate = schedule(optimizer, stage)
    without_decay = [float(rate(step)) / (1 - step / 50) for step in range(8)]
    expected = stage.learning_rate * np.minimum(1, np.arange(1, 9) / 5)
    np.testing.assert_allclose(without_decay, expected, rtol=1e-5)


def test_a_stage_of_few_steps_has_a_rate_at_every_step():
    optimizer, stage = settings(steps=1)
    assert float(schedule(optimizer, stage)(0)) == pytest.approx(stage.learning_rate)
