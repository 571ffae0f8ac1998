"""Batches of a fixed size hold every row once, in order, before their padding."""

import itertools

import numpy as np
import pytest

from realm_jax.data.padding import fixed_size_batches, padded_indices


def test_padding_repeats_the_first_rows():
    assert padded_indices(3, 8).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert padded_indices(3, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 12, 13])
def test_each_row_is_in_one_batch_outside_of_padding(count):
    batches = list(fixed_size_batches(count, 4))
    assert all(len(indices) == 4 for indices, _ in batches)
    real = [indices[:real].tolist() for indices, real in batches]
    assert list(itertools.chain(*real)) == list(range(count))
    assert all(np.all(indices < count) for indices, _ in batches)
