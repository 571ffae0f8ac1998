"""Tagger rows: the label is on the first token of a word, and no word is split or lost."""

import numpy as np
import pytest

from realm_jax.tagging.batches import TaggerSource, rows, sentences_of, windows
from realm_jax.tagging.bio import labels
from realm_jax.tagging.conll import TaggedSentence
from realm_jax.tagging.words import SHAPES, sentence_of_text, sentence_of_words
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL, WordPieces

LABELS = labels("LOC PER")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "vocab.txt"
    letters = [*"abcdefghijklmnopqrstuvwxyz.'"]
    write_vocabulary(path, [*SPECIAL, "os", "##lo", *letters, *(f"##{c}" for c in letters)])
    return WordPieces.load(path)


def tagged(text, tags):
    return TaggedSentence(tuple(text.split()), tuple(tags.split()), "here:1")


DOCUMENT = [tagged("In Oslo U.S. x", "O B-LOC B-LOC O"), tagged("Bo Ek", "B-PER I-PER")]


def test_labels_are_on_first_tokens_only(pieces):
    source = TaggerSource([DOCUMENT], pieces, LABELS, 20, 0.0, 0)
    batch = source.batch(0, 1)
    tokens = pieces.tokens(batch.rows.ids[0])
    expected = [
        "[CLS]",
        "i",
        "##n",
        "os",
        "##lo",
        "u",
        ".",
        "s",
        ".",
        "x",
        "b",
        "##o",
        "e",
        "##k",
        "[SEP]",
    ]
    assert tokens == expected + ["[PAD]"] * 5
    assert batch.rows.mask[0].tolist() == [True] * 15 + [False] * 5
    counted = {place: LABELS[batch.labels[0, place]] for place in np.flatnonzero(batch.weights[0])}
    assert counted == {1: "O", 3: "B-LOC", 5: "B-LOC", 9: "O", 10: "B-PER", 12: "I-PER"}


def test_each_token_has_the_shape_of_its_word(pieces):
    [window] = windows([[sentence_of_words(["In", "OSLO", "x"])]], pieces, 20)
    made = rows([window], 10, pieces)
    names = [SHAPES[i] for i in made.shapes[0]]
    expected = ["none", "Capital", "Capital", "CAPITALS", "CAPITALS", "lower", "none"]
    assert names == expected + ["none"] * 3


def test_windows_end_at_sentences_if_possible_and_never_split_a_word(pieces):
    document = [sentence_of_words(words.split()) for words in ("a bc d", "ef gh", "i " * 9, "jk")]
    cut = windows([document], pieces, 8)  # six tokens per window
    assert [pieces.decode(window.ids) for window in cut] == [
        "a bc d",
        "ef gh",
        "i i i i i i",
        "i i i jk",
    ]
    words = np.concatenate([window.words[window.first] for window in cut])
    assert words.tolist() == list(range(3 + 2 + 9 + 1))


def test_a_word_longer_than_a_row_is_truncated_and_the_next_word_kept(pieces):
    document = [sentence_of_words(["abcdefghijkl", "m"]), sentence_of_words(["n"])]
    cut = windows([document, document], pieces, 8)
    assert [pieces.decode(window.ids) for window in cut] == ["abcdef", "m n"] * 2
    assert [window.document for window in cut] == [0, 0, 1, 1]
    assert cut[1].words.tolist() == [1, 2]


def test_documents_and_sentences_without_tokens_are_skipped(pieces):
    empty, blank = sentence_of_text(""), sentence_of_words(["\u200b", "a"])
    cut = windows([[], [empty], [empty, blank]], pieces, 8)
    assert [(w.document, w.words.tolist()) for w in cut] == [(2, [1])]


def test_masked_words_are_masked_completely_and_at_the_given_rate(pieces):
    document = [tagged("Oslo ab c " * 10, "O O O " * 10)]
    source = TaggerSource([document], pieces, LABELS, 80, 0.3, 0)
    shares = []
    for step in range(30):
        batch = source.batch(step, 1)
        plain = TaggerSource([document], pieces, LABELS, 80, 0.0, 0).batch(step, 1)
        unknown = batch.rows.ids[0] == pieces.unk
        first = batch.weights[0] > 0
        shares.append(unknown[first].mean())
        word = first.cumsum()
        for number in range(1, 31):
            own = unknown[(word == number) & (batch.rows.shapes[0] > 0)]
            assert own.all() or not own.any()
        np.testing.assert_array_equal(batch.rows.ids[0][~unknown], plain.rows.ids[0][~unknown])
    assert 0.25 < np.mean(shares) < 0.35


def test_a_batch_depends_only_on_seed_and_step(pieces):
    documents = [DOCUMENT] * 9
    first, again = (TaggerSource(documents, pieces, LABELS, 20, 0.2, 4) for _ in range(2))
    again.batch(0, 4)
    for ours, theirs in zip(first.batch(3, 4).rows, again.batch(3, 4).rows, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(sentences_of(documents)) == 9
