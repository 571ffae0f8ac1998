"""The words that BM25 compares: tokenized, without stop words, stemmed."""

import logging
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np


class Texts:
    """Texts in memory, indexed by their words.

    Attributes:
      lengths: Int64 [T], words of each text.
      occurrences: word -> texts that hold it, and how often.
    """

    def __init__(self, texts: Iterable[str]):
        of_texts = words_of(texts)
        self.lengths = np.array([len(words) for words in of_texts], np.int64)
        self.occurrences: dict[str, tuple[list[int], list[int]]] = {}
        for number, words in enumerate(of_texts):
            for word, count in Counter(words).items():
                at, counts = self.occurrences.setdefault(word, ([], []))
                at.append(number)
                counts.append(count)


def words_of(texts: Iterable[str]) -> list[list[str]]:
    """The stemmed words of each text."""
    words: list[list[str]] = tokenize(texts, return_ids=False)
    return words


def tokenize(texts: Iterable[str], *, return_ids: bool) -> Any:
    """The words of texts as strings, or as ids with a vocabulary."""
    return library().tokenize(
        texts, stopwords="en", stemmer=_stemmer(), return_ids=return_ids, show_progress=False
    )


@cache
def _stemmer() -> Any:
    from Stemmer import Stemmer

    return Stemmer("english")


@cache
def library() -> Any:
    """The module bm25s."""
    import bm25s  # here: it starts JAX's devices

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s
