"""Passages with the text of another one."""

import numpy as np

from realm_jax.corpus.dedup import copies
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages


def test_copies_of_the_source_have_its_title_and_body(tmp_path, vocabulary):
    given = [
        ("Danube", "The river joins."),
        ("Danube", "The river flows."),
        ("Vienna", "The river joins."),
        ("Danube", "The river joins."),
        ("Danube", "The river joins near Berlin."),
    ]
    write_passages(tmp_path / "z", [(title, [body]) for title, body in given], vocabulary)
    store = PassageStore.open(tmp_path / "z")
    ids = np.tile(np.arange(5), (4, 1))
    found = copies(store, np.array([0, 3, 1, -1]), ids)
    assert [np.flatnonzero(row).tolist() for row in found] == [[0, 3], [0, 3], [1], []]


def test_a_source_that_the_searched_generation_lacks_has_no_copies(tmp_path, vocabulary):
    write_passages(tmp_path / "z", [("Danube", ["The river joins."])], vocabulary)
    store = PassageStore.open(tmp_path / "z")
    found = copies(store, np.array([7, 0]), np.zeros((2, 1), np.int64))  # 7 was added later
    assert found.tolist() == [[False], [True]]
