"""Finds answers in passages: the token spans whose text counts as correct by exact match."""

import time
from itertools import accumulate, chain, islice, pairwise, product, takewhile
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from realm_jax.corpus.store import PassageStore
from realm_jax.data.question_checks import Question
from realm_jax.text.answer_form import folded, normalise_answer, plain, without_articles
from realm_jax.text.expression import MOST_SECONDS, Expression

Offsets = Int32[np.ndarray, "n 2"]  # characters (start, stop) of each token


@runtime_checkable
class Accepted(Protocol):
    """The accepted answers of one question, prepared for search in passages."""

    def may_be_in(self, body: str) -> bool:
        """A fast test without tokens; if it is False, `spans` finds nothing."""
        ...

    def spans(self, body: str, offsets: Offsets, widest: int) -> list[tuple[int, int]]:
        """First and last token of every span of at most `widest` tokens that is an answer.

        A span is an answer if its text is correct by the official metric. Spans that differ only
        in surrounding articles and punctuation give one result: the span written like the answer,
        else the shortest.
        """
        ...


def accepted(question: Question) -> Accepted:
    """Prepares the accepted answers of a question."""
    if question.expression:
        return _Expressions(question.answers)
    return _Texts(question.answers)


def contains_answer(answers: Accepted, store: PassageStore, passage: int) -> bool:
    """Whether the body of a passage contains an answer span of any width."""
    body = store.body(passage)
    if not answers.may_be_in(body):
        return False
    offsets = store.body_offsets(passage)
    return bool(answers.spans(body, offsets, len(offsets)))


class _Texts:
    """Answers as text, compared after normalisation; an empty normalised answer never matches."""

    def __init__(self, answers: tuple[str, ...]):
        self._written = {normalise_answer(a): folded(a.strip()) for a in reversed(answers)}
        self._written.pop("", None)
        self._longest_words = {_one_sigma(max(f.split(), key=len)) for f in self._written}

    def may_be_in(self, body: str) -> bool:
        """Whether the body, without punctuation, contains the longest word of an answer."""
        text = _one_sigma(plain(body))
        return any(word in text for word in self._longest_words)

    def spans(self, body: str, offsets: Offsets, widest: int) -> list[tuple[int, int]]:
        """See `Accepted.spans`."""
        bounds = offsets.tolist()
        forms = _forms(body, bounds)
        ends = list(accumulate(map(len, forms)))
        text = "".join(forms)
        # Tokens with an empty form share start and end with their neighbours. `last_at` keeps the
        # non-empty token that ends at a character, `first_at` the last token that starts there.
        first_at = {
            end - len(form): i for i, (form, end) in enumerate(zip(forms, ends, strict=True))
        }
        last_at = {end: i for i, (form, end) in enumerate(zip(forms, ends, strict=True)) if form}
        found = set()
        for form, written in self._written.items():
            for at, stop in _occurrences(_one_sigma(form.replace(" ", "")), text):
                first, last = first_at.get(at), last_at.get(stop)
                if first is not None and last is not None:
                    around = _with_empty_ends(forms, first, last, len(written))
                    fits = [(i, j) for i, j in around if j - i < widest]
                    texts = [body[bounds[i][0] : bounds[j][1]] for i, j in fits]
                    found |= set(_best(fits, texts, form, written))
        return sorted(found)


class _Expressions:
    """Answers as regular expressions: a span is an answer if an expression matches its start."""

    def __init__(self, patterns: tuple[str, ...]):
        self._expressions = [Expression(pattern) for pattern in patterns]

    def may_be_in(self, body: str) -> bool:
        """Whether an expression matches anywhere."""
        return any(expression.found_in(body) for expression in self._expressions)

    def spans(self, body: str, offsets: Offsets, widest: int) -> list[tuple[int, int]]:
        """See `Accepted.spans`. The text is truncated to `widest` tokens before matching.

        Therefore an expression that could match to the end of the passage finds shorter matches.
        """
        starts = offsets[:, 0].tolist()
        piece_at = dict(zip(reversed(starts), reversed(range(len(starts))), strict=True))
        found = set()
        for expression in self._expressions:
            until = time.monotonic() + MOST_SECONDS
            for start in expression.starts(body, until):
                first = piece_at.get(start)
                if first is None:
                    continue
                window = offsets[first : first + widest, 1]
                end = expression.first_end(body[start : window[-1]], until)
                if not end:
                    continue
                width = int(np.searchsorted(window, start + end))
                if expression.first_end(body[start : window[width]], until) is not None:
                    found.add((first, first + width))
        return sorted(found)


def _forms(body: str, bounds: list[list[int]]) -> list[str]:
    """The normalised text of each token without spaces; "" for articles and punctuation.

    A character that is several tokens, such as a Hangul syllable, is the text of the first one.
    """
    stops = [0, *(stop for _, stop in bounds)]
    forms = [
        _one_sigma(plain(body[max(start, before) : stop]))
        for (start, stop), before in zip(bounds, stops, strict=False)
    ]
    gaps = [before[1] < after[0] for before, after in pairwise(bounds)]
    spaced = forms[:1]
    spaced += [" " + form if gap else form for form, gap in zip(forms[1:], gaps, strict=True)]
    text = without_articles("".join(spaced))
    ends = accumulate(map(len, spaced))
    return [
        text[end - len(form) : end].replace(" ", "") for form, end in zip(forms, ends, strict=True)
    ]


def _one_sigma(text: str) -> str:
    """The text with the same form of sigma at the end of a word as elsewhere.

    In lower case, the forms differ: a word piece does not tell whether it ends a word.
    """
    return text.replace("ς", "σ")


def _occurrences(needle: str, text: str) -> list[tuple[int, int]]:
    found, at = [], text.find(needle)
    while at >= 0:
        found.append((at, at + len(needle)))
        at = text.find(needle, at + 1)
    return found


def _with_empty_ends(forms: list[str], first: int, last: int, most: int) -> list[tuple[int, int]]:
    """The span, and its extensions by up to `most` adjacent tokens with an empty form."""
    lefts = [first, *takewhile(lambda i: not forms[i], range(first - 1, -1, -1))]
    rights = [last, *takewhile(lambda i: not forms[i], range(last + 1, len(forms)))]
    return list(product(lefts[: most + 1], rights[: most + 1]))


def _best(
    spans: list[tuple[int, int]], texts: list[str], form: str, written: str
) -> list[tuple[int, int]]:
    """The first span written like the answer, else the first correct span, else no span."""
    as_written = (s for s, text in zip(spans, texts, strict=True) if folded(text) == written)
    right = (s for s, text in zip(spans, texts, strict=True) if normalise_answer(text) == form)
    return list(islice(chain(as_written, right), 1))
