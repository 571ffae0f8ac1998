"""The penalty on the distance of vectors to those before the stage: which rows count."""

import jax.numpy as jnp
import numpy as np

from realm_jax.trainer.distance import realm_weights


def test_excluded_candidates_do_not_count_and_all_null_passages_together_count_once():
    valid = jnp.array([[[1, 1, 0], [1, 1, 1]], [[1, 0, 0], [0, 1, 1]]], bool)
    expected = [[1, 1, 0.5, 1, 0, 1, 1], [1, 1, 0.5, 0, 0, 1, 1]]  # queries, null, candidates
    np.testing.assert_array_equal(realm_weights(valid), expected)
