"""Packed streams: every row is in one slot, complete, with little padding."""

import itertools

import numpy as np
import pytest

from realm_jax.data.packing import bucket_for, lengths_of, make_buckets, pack, sample_groups
from realm_jax.data.rows import Rows

LIMITS = [96] * 4 + [384] * 28


def rows(lengths, width, first=0):
    """Rows whose ids encode row number and position."""
    lengths = np.asarray(lengths)
    ids = (
        np.arange(width)
        + 1000 * (first + np.arange(lengths.size).reshape(lengths.shape))[..., None]
    )
    mask = np.arange(width) < lengths[..., None]
    ids = np.where(mask, ids, 0).astype(np.int32)
    return Rows(ids, mask, (ids % 2).astype(np.int32))


def test_every_row_is_contiguous_and_begins_at_its_start():
    parts = [rows([[3, 7], [2, 8]], 8), rows([[20, 9, 4], [1, 24, 23]], 24, first=4)]
    widths = (24, 24, 16, 8, 8)
    packed = pack(parts, widths)
    assert [block.ids.shape for block in packed.blocks] == [(2, 2, 24), (2, 1, 16), (2, 2, 8)]
    streams = [
        np.concatenate([b[kind].reshape(2, -1) for b in packed.blocks], 1) for kind in range(3)
    ]
    for group in range(2):
        numbered = [(part, number) for part in parts for number in range(part.ids.shape[1])]
        for number, (part, row) in enumerate(numbered):
            length, start = int(part.mask[group, row].sum()), packed.starts[group, number]
            for stream, kind in zip(streams, part, strict=True):
                found = stream[group, start : start + length]
                np.testing.assert_array_equal(found, kind[group, row, :length])
    assert streams[1].sum() == lengths_of(parts).sum()  # no other token is real


def test_a_row_ends_after_its_last_real_token_also_if_earlier_ones_are_hidden():
    part = rows([[7, 4]], 8)
    part.mask[0, 0, :4] = False
    assert lengths_of([part]).tolist() == [[7, 4]]
    packed = pack([part], (8, 4))
    assert [block.ids.tolist() for block in packed.blocks] == [
        [[[0, 1, 2, 3, 4, 5, 6, 0]]],
        [[[1000, 1001, 1002, 1003]]],
    ]


def test_a_batch_uses_the_first_bucket_that_fits():
    seen = sample_groups(np.array([[30] + [250] * 7, [40] + [280] * 7]), 4)
    buckets = make_buckets(LIMITS, seen)
    assert all(len(set(widths)) <= 4 for widths in buckets)
    assert (buckets[0][0], buckets[0][-1], buckets[1][-1]) == (288, 32, 64)
    usual = np.array([[30] * 4 + [250] * 28])
    assert bucket_for(usual, buckets) == 0
    longer = usual.copy()
    longer[0, :4] = 40
    assert bucket_for(longer, buckets) == 1
    assert buckets[bucket_for(np.array([LIMITS]), buckets)] == buckets[-1]
    for low, high in itertools.pairwise(buckets):
        assert (np.array(low) <= high).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_bucket_is_nowhere_narrower_than_the_one_before(seed):
    rng = np.random.default_rng(seed)
    seen = rng.integers(3, 129, size=(64, 16)) // rng.integers(1, 4, size=16)
    for low, high in itertools.pairwise(make_buckets([128] * 16, seen)):
        assert (np.array(low) <= high).all()


def test_a_row_that_is_longer_than_its_slot_is_an_error():
    with pytest.raises(ValueError, match="do not fit"):
        pack([rows([[9, 20]], 24)], (24, 8))


def test_without_sample_lengths_the_bucket_fits_any_batch():
    assert make_buckets(LIMITS) == ((384,) * 28 + (96,) * 4,)


def test_packing_removes_at_least_forty_percent_of_the_padding():
    """Lengths are distributed as in a corpus: most near the limit, some much shorter."""
    rng = np.random.default_rng(0)
    lengths = (290 - rng.exponential(80, (2000, 8))).astype(int).clip(10, 288)
    buckets = make_buckets([288] * 128, sample_groups(lengths, 16))
    batches = lengths.reshape(-1, 1, 128)
    positions = np.mean([sum(buckets[bucket_for(batch, buckets)]) for batch in batches])
    packed, padded = 1 - lengths.mean() * 128 / positions, 1 - lengths.mean() / 288
    assert packed < 0.6 * padded
