"""Answer normalisation equals an independent implementation of its definition."""

import random
import unicodedata

import pytest

from realm_jax.text.answer_form import folded, normalise_answer, plain, without_articles

MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"  # the 32 of ASCII


def by_definition(text):
    """NFD, lower case, no ASCII punctuation, no articles, single spaces; without `re`."""
    text = "".join(c for c in unicodedata.normalize("NFD", text).lower() if c not in MARKS)
    words, word = [], ""
    for character in text + "\0":
        if character.isalnum():
            word += character
            continue
        words += [" " if word in ("a", "an", "the") else word, character]
        word = ""
    return " ".join("".join(words[:-1]).split())


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles", "beatles"),
        ("a  an the", ""),
        ("theatre", "theatre"),
        ("  U.S.A. ", "usa"),
        ("rock-'n'-roll!", "rocknroll"),
        ("Zürich", "zu\u0308rich"),
        ("Zu\u0308rich", "zu\u0308rich"),
        ("東京", "東京"),
        ("“The End”", "“ end”"),
        ("an A–Z", "–z"),
        ("María", "mari\u0301"),  # the mark ends a word, so "a" is an article
        ("vitamin\u00a0A", "vitamin"),
        ("snake_case the_end", "snakecase theend"),
    ],
)
def test_answer_is_normalised(text, normal):
    assert normalise_answer(text) == normal
    assert by_definition(text) == normal


def test_normalisation_equals_its_definition_on_random_text():
    rng = random.Random(0)
    parts = ["the", "The", "an", "a", "A", " ", "  ", "\n", "\t", "\u00a0", *MARKS]
    parts += ["word", "x1", "1990s", *"éüñçİıßΣσςЖ東京ก๋—–“”…½²٣\u0301\u0308\u200b\u2028"]
    for _ in range(20_000):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(12)))
        assert normalise_answer(text) == by_definition(text), repr(text)


def test_normalisation_steps():
    assert folded("É A") == "e\u0301 a"
    assert plain("U.S. É!") == "us e\u0301"
    assert without_articles("the end of a day") == "    end of   day"
    assert [len(without_articles(t)) for t in ("an", "the a", "")] == [2, 5, 0]
