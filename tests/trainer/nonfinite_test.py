"""The detector of non-finite losses, without a training loop."""

import jax
import jax.numpy as jnp
import pytest

from realm_jax.errors import RealmError
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.nonfinite import NonFiniteDetector


@jax.jit
def slow_sum(matrix):
    return jax.lax.fori_loop(0, 300, lambda _, product: product @ matrix, matrix).sum()


def metrics_of(loss, gradient_norm=1.0):
    return {"loss": jnp.float32(loss), "gradient_norm": jnp.float32(gradient_norm)}


def test_at_most_two_steps_are_in_progress(tmp_path):
    """A stop signal would otherwise wait for all steps until the next report."""
    matrix = jnp.eye(512)
    slow_sum(matrix).block_until_ready()  # compiled
    detector, first = NonFiniteDetector(RunDir(tmp_path), "ict"), slow_sum(matrix)
    detector.add(0, {}, metrics_of(0.0) | {"loss": first})
    assert not first.is_ready()
    detector.add(1, {}, metrics_of(0.0))
    assert first.is_ready()


def test_batches_that_cannot_be_replayed_are_not_saved(tmp_path):
    detector = NonFiniteDetector(RunDir(tmp_path), "qa")
    detector.add(3, {}, metrics_of(1.0, jnp.inf))
    with pytest.raises(RealmError, match="batches of stage qa cannot be replayed") as error:
        detector.flush()
    assert "--replay" not in str(error.value) and not RunDir(tmp_path).replays.exists()
