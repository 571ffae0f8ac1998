"""Batch n is a function of (seed, n), and each example occurs once per epoch."""

import subprocess
import sys
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.data import sampling
from realm_jax.data.inverse_cloze import InverseClozeSource
from realm_jax.data.masked_text import MaskedTextSource

TESTS = Path(__file__).parents[1]


def test_each_example_occurs_once_per_epoch_in_a_new_order():
    drawn = np.concatenate([sampling.example_ids(0, step, 4, 10) for step in range(5)])
    first, second = drawn[:10], drawn[10:]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist()
    other_seed = np.concatenate([sampling.example_ids(1, step, 4, 10) for step in range(5)])
    assert drawn.tolist() != other_seed.tolist()


def test_a_batch_larger_than_the_corpus_repeats_it():
    assert np.bincount(sampling.example_ids(0, 0, 9, 3)).tolist() == [3, 3, 3]


def test_the_batch_size_does_not_change_the_order():
    by_two = np.concatenate([sampling.example_ids(3, step, 2, 7) for step in range(6)])
    by_six = np.concatenate([sampling.example_ids(3, step, 6, 7) for step in range(2)])
    np.testing.assert_array_equal(by_two, by_six)


def test_streams_differ_by_name_number_and_seed():
    draws = {
        sampling.generator(*key).integers(2**62)
        for key in [(0, "a", 1), (0, "b", 1), (0, "a", 2), (1, "a", 1), (0, "a")]
    }
    assert len(draws) == 5


def sources(tiny, **changes):
    config = tiny_config(tiny.folder, **changes)
    return MaskedTextSource(tiny.store, tiny.spans, config), InverseClozeSource(tiny.store, config)


@pytest.mark.parametrize("scheme", ["salient_span", "random_span", "random_token"])
def test_a_batch_does_not_depend_on_earlier_batches(tiny, scheme):
    for straight, resumed in zip(
        sources(tiny, masking__scheme=scheme), sources(tiny, masking__scheme=scheme), strict=True
    ):
        batches = [straight.batch(step, 4) for step in range(4)]
        for mine, again in zip(batches[3], resumed.batch(3, 4), strict=True):
            jax.tree.map(np.testing.assert_array_equal, mine, again)
        assert not np.array_equal(batches[2].queries.ids, batches[3].queries.ids)


_PROGRAM = """
import sys, zlib, jax
from pathlib import Path
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedTextSource
from support.tiny_corpus import tiny_config
store = PassageStore.open(sys.argv[1])
source = MaskedTextSource(store, SpanStore.open(None, store), tiny_config(sys.argv[1]))
batch = source.batch(5, 8)
print(zlib.crc32(b"".join(a.tobytes() for a in jax.tree.leaves(batch))))
"""


def test_a_batch_is_the_same_in_a_new_process(tiny):
    arguments = [sys.executable, "-c", _PROGRAM, str(tiny.folder)]
    runs = [
        subprocess.run(
            arguments,
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(TESTS)},
        )
        for seed in ("1", "2")
    ]
    text, _ = sources(tiny)
    batch = text.batch(5, 8)
    here = zlib.crc32(b"".join(array.tobytes() for array in jax.tree.leaves(batch)))
    assert [int(run.stdout) for run in runs] == [here, here]
