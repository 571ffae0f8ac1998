"""Batches contain every item once, in order, and have few sizes."""

import pytest

from realm_jax.inference.padded_batches import SIZES, padded_batches


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 64, 65, 130])
def test_every_item_is_in_one_batch_and_there_are_few_batch_sizes(count):
    items = list(range(count))
    made = list(padded_batches(items))
    assert [item for some, real in made for item in some[:real]] == items
    assert {len(some) for some, _ in made} <= set(SIZES)
    assert all(set(some[real:]) <= set(some[:real]) for some, real in made)
    assert all(len(some) < 8 * real for some, real in made if real > 1)
