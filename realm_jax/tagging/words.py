"""Splits sentences into words like CoNLL-2003, and classifies the shape of words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

# Approximates the tokenisation of CoNLL-2003: U.S. and 1996-08-22 are one word, 's is a word.
_WORD = re.compile(r"['’][sS]\b|(?:[^\W\d_]\.){2,}|\w+(?:[-./,&'’](?!s\b)\w+)*|[^\w\s]")

SHAPES = ("none", "lower", "Capital", "C", "CAPITALS", "mixedCase", "digits", "punctuation")


@dataclass(frozen=True)
class Sentence:
    """A sentence and the character spans (start, stop) of its words."""

    text: str
    words: Sequence[tuple[int, int]]


def sentence_of_text(text: str) -> Sentence:
    """Splits a sentence of running text into words."""
    return Sentence(text, [match.span() for match in _WORD.finditer(text)])


def sentence_of_words(words: Sequence[str]) -> Sentence:
    """A sentence of these words; its text is the words joined by single spaces."""
    spans, begin = [], 0
    for word in words:
        spans.append((begin, begin + len(word)))
        begin += len(word) + 1
    return Sentence(" ".join(words), spans)


@lru_cache(maxsize=1 << 16)
def shape(word: str) -> int:
    """Index in `SHAPES` of the shape of a word, which an uncased vocabulary loses.

    `in` lower, `Paris` Capital, `J.` C, `NATO` CAPITALS, `McKay` mixedCase, `1996` digits.
    """
    letters = [c for c in word if c.isalpha()]
    if not letters:
        name = "digits" if any(c.isdigit() for c in word) else "punctuation"
    elif any(c.isdigit() for c in word):
        name = "digits"
    elif not any(c.isupper() for c in letters):
        name = "lower"
    elif len(letters) == 1:
        name = "C"
    elif all(c.isupper() for c in letters):
        name = "CAPITALS"
    else:
        name = "Capital" if letters[0].isupper() and _rest_lower(letters) else "mixedCase"
    return SHAPES.index(name)


def _rest_lower(letters: list[str]) -> bool:
    return not any(c.isupper() for c in letters[1:])
