"""Splitting keeps every sentence, in order, within the limit of word pieces."""

from itertools import pairwise

import numpy as np
import pytest

from realm_jax.corpus.documents import Document
from realm_jax.corpus.split import greedy, split
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store
from realm_jax.errors import InputError
from realm_jax.text.sentences import sentence_bounds


@pytest.mark.parametrize(
    ("lengths", "budget", "runs"),
    [
        ([3, 3, 9, 1], 6, [(0, 2), (2, 3), (3, 4)]),
        ([9], 6, [(0, 1)]),
        ([9, 9, 1, 5, 1], 6, [(0, 1), (1, 2), (2, 4), (4, 5)]),
        ([6, 1], 6, [(0, 1), (1, 2)]),
        ([], 6, []),
    ],
)
def test_greedy_groups_consecutive_items_up_to_the_budget(lengths, budget, runs):
    assert list(greedy(lengths, budget)) == runs


def test_passages_are_whole_sentences_within_the_limit(store, documents):
    lengths = store.lengths()
    for number, document in enumerate(documents):
        rows = [i for i in range(len(store)) if store.document(i) == number]
        sentences = [document.body[a:b] for a, b in sentence_bounds(document.body)]
        assert " ".join(store.body(i) for i in rows) == " ".join(sentences)
        for i in rows:
            assert store.title(i) == document.title
            assert lengths[i] <= 64 or len(store.sentences(i)) == 2
        for i, following in pairwise(rows):
            first_sentence = store.sentences(following)[1]
            assert lengths[i] + first_sentence > 64, "the next sentence would have fitted"


def test_tokens_and_offsets_are_those_of_the_text(store, words):
    for i in range(len(store)):
        [(title_ids, _), (ids, offsets)] = words.pieces([store.title(i), store.body(i)])
        assert store.title_ids(i).tolist() == title_ids.tolist()
        assert store.body_ids(i).tolist() == ids.tolist()
        assert store.body_offsets(i).tolist() == offsets.tolist()


def test_sentence_bounds_match_the_sentences_of_the_body(store):
    for i in range(len(store)):
        offsets, body = store.body_offsets(i), store.body(i)
        bounds = store.sentences(i)
        assert bounds[0] == 0
        assert bounds[-1] == len(store.body_ids(i))
        sentences = [body[offsets[a, 0] : offsets[b - 1, 1]] for a, b in pairwise(bounds)]
        assert " ".join(sentences) == body


@pytest.mark.parametrize(
    "long",
    [
        " ".join(["river"] * 5000),
        "日" * 5000,
        "日" * 200 + " river 日 river",
        "r-" * 200 + " then river " + "日" * 70,
    ],
)
def test_a_sentence_longer_than_a_passage_is_divided_and_counted(words, tmp_path, vocabulary, long):
    document = Document("A", f"One here. {long}. The end.", "x.txt")
    block = split([document, Document("B", "Short.", "y.txt")], words, 64)
    assert (block.piece_counts + 3 <= 64).all()
    assert block.remarks == {"sentence_divided": 1}
    assert block.remarks.names == {"sentence_divided": ["x.txt"]}
    report = write_store(tmp_path / "s", [document], vocabulary, passage_pieces=64)
    store = PassageStore.open(tmp_path / "s")
    bodies = [store.body(i) for i in range(len(store))]
    assert "".join(bodies).replace(" ", "") == document.body.replace(" ", "")
    assert (report["long"], report["long_names"]["sentence_divided"]) == (
        {"sentence_divided": 1},
        ["x.txt"],
    )
    assert store.manifest["long"] == report["long"]
    for i in range(len(store)):
        [(ids, offsets)] = words.pieces([store.body(i)])
        assert store.body_ids(i).tolist() == ids.tolist()
        assert store.body_offsets(i).tolist() == offsets.tolist()


def test_long_title_is_truncated_to_half_of_the_passage(words, tmp_path, vocabulary):
    title = " ".join(["river"] * 300)
    body = "The river joins. " * 40
    document = Document(title, body, "x")
    report = write_store(tmp_path / "s", [document], vocabulary, passage_pieces=64)
    assert report["long"] == {"title_cut": 1}
    store = PassageStore.open(tmp_path / "s")
    assert store.title(0) == title
    assert len(store.title_ids(0)) == 30
    assert (store.lengths() <= 64).all()
    assert len(store.sentences(0)) > 2


def test_document_without_word_pieces_is_skipped(words):
    block = split([Document("A", "\u200b\u200b", "x"), Document("B", "The king.", "x")], words)
    assert (block.documents, block.remarks, len(block.piece_counts)) == (1, {"empty_body": 1}, 1)
    assert block.document.tolist() == [0]


def test_limit_that_leaves_no_room_for_a_body_is_refused(tmp_path, vocabulary):
    with pytest.raises(InputError, match="too short"):
        write_store(tmp_path / "s", [], vocabulary, passage_pieces=3)


def test_empty_block_has_the_documented_dtypes(words):
    block = split([], words)
    assert block.pieces.dtype == block.offsets.dtype == np.int32
    assert block.piece_counts.shape == (0,)
