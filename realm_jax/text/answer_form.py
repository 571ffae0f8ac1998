"""Answer normalisation of the official open-QA evaluation scripts (SQuAD, ORQA)."""

import re
import string
import unicodedata

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(text: str) -> str:
    """Unicode NFD, lower case, without ASCII punctuation; whitespace is kept.

    The result for a text is the concatenation of the results of its parts, except that the last
    sigma of a Greek word differs from others in lower case.
    """
    return folded(text).translate(_NO_PUNCTUATION)


def folded(text: str) -> str:
    """Unicode NFD, lower case."""
    return (text if text.isascii() else unicodedata.normalize("NFD", text)).lower()


def without_articles(text: str) -> str:
    """Replaces articles by spaces of the same length.

    A combining mark is not a word character for `re`. Therefore the official rule also removes the
    last letter of `María`, as it does here.
    """
    return _ARTICLES.sub(lambda match: " " * len(match[0]), text)


def normalise_answer(text: str) -> str:
    """Unicode NFD, lower case, no ASCII punctuation, no articles, single spaces (SQuAD, ORQA)."""
    return " ".join(without_articles(plain(text)).split())
