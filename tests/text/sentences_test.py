"""Sentence splitting keeps order and every non-space character."""

import random

import pytest

from realm_jax.text.sentences import sentence_bounds


def sentences(text):
    return [text[a:b] for a, b in sentence_bounds(text)]


def test_abbreviations_and_initials_do_not_end_a_sentence():
    text = "Dr. Smith went to Washington, D.C. on Jan. 5. He met J. R. R. Tolkien. Then he left!"
    assert sentences(text) == [
        "Dr. Smith went to Washington, D.C. on Jan. 5.",
        "He met J. R. R. Tolkien.",
        "Then he left!",
    ]


def test_paragraphs_and_blank_lines_end_a_sentence():
    assert sentences("  One.\n\n\n Two é.\n\n  \n") == ["One.", "Two é."]


def test_blank_text_has_no_sentence():
    assert sentence_bounds("") == sentence_bounds(" \n\n ") == []


@pytest.mark.parametrize("space", ["\x85", "\u00a0", "\u2028", "\u202f", "\u3000", "\u00a0\u00a0"])
def test_a_space_of_several_bytes_may_precede_a_full_stop(space):
    assert sentences(f"Let p be in the set A{space}. Then p is prime.") == [
        f"Let p be in the set A{space}.",
        "Then p is prime.",
    ]


def test_every_character_of_random_text_is_covered():
    random.seed(0)
    parts = [
        "Word",
        "é",
        "日本。",
        "...",
        "\n",
        "\n\n",
        " ",
        "!",
        "?",
        '"',
        "U.S.",
        "\r\n",
        "😀",
        "e.g.",
        "A",
        ".",
        "\u00a0",
        "\u3000",
    ]
    for _ in range(1000):
        text = "".join(random.choices(parts, k=random.randrange(40)))
        bounds = sentence_bounds(text)
        covered = [False] * len(text)
        last = 0
        for start, stop in bounds:
            assert last <= start < stop
            assert text[start:stop] == text[start:stop].strip()
            covered[start:stop] = [True] * (stop - start)
            last = stop
        assert all(c or text[i].isspace() for i, c in enumerate(covered)), repr(text)
