"""Input rows equal literal arrays, also when they are truncated."""

import numpy as np
import pytest

from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.rows import NULL_PASSAGE, joint_rows, passage_rows, query_rows
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

PAD, _, CLS, SEP, _ = range(5)
A, B, C, D, E, F = range(5, 11)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Passages `a b | c d e f` and `c | a b`; each letter is a piece with id 5 or more."""
    folder = tmp_path_factory.mktemp("letters")
    write_vocabulary(folder / "vocab.txt", [*SPECIAL, *"abcdef"])
    passages = [("a b", ["c d", "e f"]), ("c", ["a b"])]
    write_passages(folder / "store", passages, folder / "vocab.txt")
    return PassageStore.open(folder / "store")


def lists(rows):
    return rows.ids.tolist(), rows.mask.astype(int).tolist(), rows.segments.tolist()


def test_the_layout_of_a_query_row(store):
    rows = query_rows([np.array([A, B]), np.array([C])], 5, store.vocabulary)
    assert lists(rows) == (
        [[CLS, A, B, SEP, PAD], [CLS, C, SEP, PAD, PAD]],
        [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]],
        [[0] * 5] * 2,
    )


def test_a_long_query_is_truncated_and_keeps_its_closing_sep(store):
    rows = query_rows([np.array([A, B, C, D])], 5, store.vocabulary)
    assert rows.ids.tolist() == [[CLS, A, B, C, SEP]]
    assert rows.mask.all()


def test_the_layout_of_passage_rows_and_of_the_null_passage(store):
    rows = passage_rows(store, np.array([0, 1, NULL_PASSAGE]), 10)
    assert lists(rows) == (
        [
            [CLS, A, B, SEP, C, D, E, F, SEP, PAD],
            [CLS, C, SEP, A, B, SEP, PAD, PAD, PAD, PAD],
            [CLS, SEP, SEP, PAD, PAD, PAD, PAD, PAD, PAD, PAD],
        ],
        [[1] * 9 + [0], [1] * 6 + [0] * 4, [1] * 3 + [0] * 7],
        [[0] * 4 + [1] * 5 + [0], [0] * 3 + [1] * 3 + [0] * 4, [0, 0, 1] + [0] * 7],
    )


def test_a_long_passage_loses_body_tokens_first_then_title_tokens(store):
    of = lambda length: passage_rows(store, np.array([0]), length).ids[0].tolist()  # noqa: E731
    assert of(7) == [CLS, A, B, SEP, C, D, SEP]
    assert of(5) == [CLS, A, B, SEP, SEP]
    assert of(4) == [CLS, A, SEP, SEP]


def test_passage_ids_may_have_any_shape(store):
    numbers = np.array([[0, NULL_PASSAGE], [1, 0]])
    rows = passage_rows(store, numbers, 10)
    assert rows.ids.shape == rows.mask.shape == rows.segments.shape == (2, 2, 10)
    flat = passage_rows(store, numbers.reshape(-1), 10)
    np.testing.assert_array_equal(rows.ids.reshape(4, 10), flat.ids)


def test_joint_rows_contain_the_query_and_the_body_without_the_title(store):
    queries = query_rows([np.array([E, F]), np.array([D])], 4, store.vocabulary)
    rows = joint_rows(queries, store, np.array([[NULL_PASSAGE, 0], [1, NULL_PASSAGE]]), 9)
    assert lists(rows) == (
        [
            [[CLS, E, F, SEP, SEP, PAD, PAD, PAD, PAD], [CLS, E, F, SEP, C, D, E, F, SEP]],
            [[CLS, D, SEP, A, B, SEP, PAD, PAD, PAD], [CLS, D, SEP, SEP, PAD, PAD, PAD, PAD, PAD]],
        ],
        [
            [[1] * 5 + [0] * 4, [1] * 9],
            [[1] * 6 + [0] * 3, [1] * 4 + [0] * 5],
        ],
        [
            [[0] * 4 + [1] + [0] * 4, [0] * 4 + [1] * 5],
            [[0] * 3 + [1] * 3 + [0] * 3, [0] * 3 + [1] + [0] * 5],
        ],
    )


def test_a_long_joint_row_loses_the_end_of_the_body(store):
    queries = query_rows([np.array([E, F])], 4, store.vocabulary)
    rows = joint_rows(queries, store, np.array([[0]]), 7)
    assert rows.ids[0, 0].tolist() == [CLS, E, F, SEP, C, D, SEP]
    assert rows.mask.all()


@pytest.mark.parametrize("most", [20, 120])  # copied by one gather, and row by row
def test_random_passages_equal_a_reference_layout(tmp_path, most):
    rng = np.random.default_rng(most)
    write_vocabulary(tmp_path / "vocab.txt", [*SPECIAL, *"abcdef"])
    passages = [
        (" ".join(rng.choice([*"abcdef"], rng.integers(0, 5))), [" ".join(rng.choice([*"ab"], n))])
        for n in rng.integers(1, most, 40)
    ]
    write_passages(tmp_path / "store", passages, tmp_path / "vocab.txt")
    store = PassageStore.open(tmp_path / "store")
    numbers = rng.integers(-1, len(store), (16, 4))
    rows = passage_rows(store, numbers, 64)
    for index in np.ndindex(*numbers.shape):
        i = int(numbers[index])
        title = [] if i < 0 else store.title_ids(i).tolist()
        body = [] if i < 0 else store.body_ids(i).tolist()[: 64 - 3 - len(title)]
        expected = [CLS, *title, SEP, *body, SEP]
        assert rows.ids[index].tolist() == expected + [PAD] * (64 - len(expected))
        assert rows.mask[index].sum() == len(expected)
        assert rows.segments[index].sum() == len(body) + 1
