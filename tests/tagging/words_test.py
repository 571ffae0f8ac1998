"""Splitting text into words, and word shapes."""

from pathlib import Path

import pytest

from realm_jax.models.tagger import WORD_SHAPES
from realm_jax.tagging.conll import read_conll
from realm_jax.tagging.words import SHAPES, sentence_of_text, sentence_of_words, shape

VALID = Path(__file__).parents[3] / "shared/data/conll2003.en.valid.txt.xz"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.S. won.", "The|U.S.|won|."),
        ("John's 3,000-ton ship", "John|'s|3,000-ton|ship"),
        ("AT&T’s (Reuters) o'clock", "AT&T|’s|(|Reuters|)|o'clock"),
        ("1996-08-22: 2-1, 50%", "1996-08-22|:|2-1|,|50|%"),
        ("Żywiec café_1 日本", "Żywiec|café_1|日本"),
        ("", ""),
        (" \t", ""),
    ],
)
def test_text_is_split_into_words(text, words):
    sentence = sentence_of_text(text)
    assert "|".join(text[a:b] for a, b in sentence.words) == words


def test_given_words_keep_their_offsets():
    sentence = sentence_of_words(["New", "York", "'s"])
    assert sentence.text == "New York 's"
    assert [sentence.text[a:b] for a, b in sentence.words] == ["New", "York", "'s"]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("in", "lower"),
        ("Paris", "Capital"),
        ("Saint-denis", "Capital"),
        ("J.", "C"),
        ("A", "C"),
        ("NATO", "CAPITALS"),
        ("U.S.", "CAPITALS"),
        ("McKay", "mixedCase"),
        ("iPhone", "mixedCase"),
        ("1996", "digits"),
        ("F16", "digits"),
        (",", "punctuation"),
        ("日本", "lower"),
        ("Żywiec", "Capital"),
    ],
)
def test_word_shapes(word, name):
    assert SHAPES[shape(word)] == name


@pytest.mark.skipif(not VALID.exists(), reason=f"needs {VALID.name} beside the project")
def test_words_agree_mostly_with_conll():
    documents = read_conll(str(VALID), "LOC MISC ORG PER")
    same = total = 0
    for document in documents:
        for tagged in document:
            sentence = sentence_of_words(tagged.words)
            ours = set(sentence_of_text(sentence.text).words)
            same += sum(word in ours for word in sentence.words)
            total += len(sentence.words)
    assert same / total > 0.98


def test_the_tagger_has_one_embedding_per_shape():
    assert len(SHAPES) == WORD_SHAPES
