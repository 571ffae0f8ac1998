"""The form in which answers are compared: what the official open-QA scripts make of a text."""

import re
import string
import unicodedata

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(text: str) -> str:
    """Unicode NFD, lower case, without ASCII punctuation: `normalise_answer` up to the articles.

    Whitespace stays, so the plain form of a text is that of its parts, put together.
    """
    return folded(text).translate(_NO_PUNCTUATION)


def folded(text: str) -> str:
    """Unicode NFD, lower case."""
    return (text if text.isascii() else unicodedata.normalize("NFD", text)).lower()


def without_articles(text: str) -> str:
    """A plain text with blanks for its articles, as long as before.

    A combining mark is no word character, so to the official rule the last letter of `Maria`, if
    its i has an accent, is an article too.
    """
    return _ARTICLES.sub(lambda match: " " * len(match[0]), text)


def normalise_answer(text: str) -> str:
    """Unicode NFD, lower case, no ASCII punctuation, no articles, single spaces (SQuAD, ORQA)."""
    return " ".join(without_articles(plain(text)).split())
