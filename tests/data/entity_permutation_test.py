"""Rare pieces are permuted among themselves; common and special pieces stay."""

import numpy as np
import pytest
from support.tiny_corpus import vocabulary

from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.entity_permutation import RarePieces, permute_rows
from realm_jax.text.vocabulary import write_vocabulary


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A passage with 3,000 times "the", and a, b and c once each."""
    folder = tmp_path_factory.mktemp("permuting")
    write_vocabulary(folder / "vocab.txt", vocabulary())
    write_passages(
        folder / "z", [("", ["the " * 1500 + "a b c " + "the " * 1500])], folder / "vocab.txt"
    )
    return PassageStore.open(folder / "z")


def test_only_rare_pieces_are_permuted(store):
    words = store.vocabulary
    rare = RarePieces(store)
    table = rare.permutation(np.random.default_rng(0))
    stay = np.setdiff1d(np.arange(words.size), rare.rare)
    the = words.pieces(["the"])[0][0]
    assert set(words.special) | set(the.tolist()) == set(stay.tolist())
    np.testing.assert_array_equal(table[stay], stay)
    np.testing.assert_array_equal(np.sort(table[rare.rare]), rare.rare)
    assert (table[rare.rare] != rare.rare).mean() > 0.9


def test_the_permutation_depends_only_on_the_generator(store):
    rare = RarePieces(store)
    one, again, two = (rare.permutation(np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != two).any()


def test_only_the_chosen_rows_are_permuted():
    pieces = np.array([[0, 1, 2], [0, 1, 2]], np.int32)
    table = np.array([2, 0, 1], np.int32)
    found = permute_rows(pieces, table, np.array([True, False]))
    np.testing.assert_array_equal(found, [[2, 0, 1], [0, 1, 2]])
