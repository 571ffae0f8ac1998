"""Merged segments: few are searched, vectors are copied seldom, and no row is lost."""

import math

import numpy as np
import pytest

from realm_jax.artifacts.segment_merging import Visible, merged, mostly_hidden, to_merge
from realm_jax.artifacts.segments import Segment
from realm_jax.retrieval.exact_searcher import ExactSearcher

MOST, ROUNDS = 200, 150


def part(ids, name=""):
    """A segment whose vectors follow from the ids; all rows are visible."""
    ids = np.sort(ids)
    vectors = np.stack([ids % 1000, ids // 1000], 1).astype(np.float32)
    segment = Segment(name, ExactSearcher(vectors), ids, vectors.astype(np.float16))
    return Visible(segment, np.arange(len(ids)))


def hide(one, share, rng):
    return Visible(one.segment, one.at[rng.random(len(one.at)) >= share])


def sizes(parts):
    return [len(one.at) for one in parts]


@pytest.mark.parametrize("seed", range(3))
def test_segments_stay_few_and_vectors_are_copied_seldom(seed):
    rng, parts, end, copied = np.random.default_rng(seed), [], 0, 0
    for _ in range(ROUNDS):
        parts = [hide(one, rng.choice([0.0, 0.02, 0.3], p=[0.9, 0.05, 0.05]), rng) for one in parts]
        new = np.arange(end, end + round(math.exp(rng.uniform(0, math.log(MOST / 2)))))
        end = new[-1] + 1
        chosen = to_merge(parts, len(new), MOST, mostly_hidden(parts))
        assert set(mostly_hidden(parts)) <= set(chosen)
        rows, vectors = merged(chosen, new, part(new).segment.vectors)
        kept = [one for one in parts if one not in chosen]
        expected = np.sort(np.concatenate([*(one.ids for one in [*parts, part(new)])]))
        made = [part(some) for some in np.array_split(rows, -(-len(rows) // MOST))]
        parts, copied = kept + made, copied + len(rows) - len(new)
        np.testing.assert_array_equal(np.sort(np.concatenate([one.ids for one in parts])), expected)
        np.testing.assert_array_equal(vectors, part(rows).segment.vectors)
        assert len(parts) <= 3 * len(expected) / MOST + math.log(MOST, 3) + 1
    assert copied < 2 * end


def test_small_segments_are_merged_also_after_larger_ones():
    parts = [part(np.arange(n)) for n in (4, 100, 4, 4, 90)]
    assert sizes(to_merge(parts, 0, 20)) == [4, 4, 4]
    assert sizes(to_merge(parts, 1, 20)) == [4, 4, 4]
    assert to_merge(parts[:2], 1, 200) == []
    assert sizes(to_merge(parts, 60, 300)) == [4, 4, 4, 90, 100]
    assert to_merge([part(np.arange(0))], 0, 200) != []


def test_a_newer_vector_replaces_that_of_a_merged_segment():
    parts = [part(np.array([1, 5])), part(np.array([2, 9]))]
    rows, vectors = merged(parts, np.array([2, 5, 7]), np.full((3, 2), 50.0, np.float32))
    assert rows.tolist() == [1, 2, 5, 7, 9]
    assert vectors[:, 0].tolist() == [1, 50, 50, 50, 9]
    assert parts[1].between(3, 9).ids.tolist() == [9]
