"""Where a passage says an answer: the runs of its word pieces that exact match would call right."""

import time
from itertools import accumulate, chain, islice, pairwise, product, takewhile
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from realm_jax.corpus.store import PassageStore
from realm_jax.data.question_files import Question
from realm_jax.text.answer_form import folded, normalise_answer, plain, without_articles
from realm_jax.text.expression import MOST_SECONDS, Expression

Offsets = Int32[np.ndarray, "n 2"]  # characters (start, stop) of each piece


@runtime_checkable
class Accepted(Protocol):
    """The accepted answers of one question, ready to be looked for."""

    def may_be_in(self, body: str) -> bool:
        """Quick: false only where `spans` would find nothing."""
        ...

    def spans(self, body: str, offsets: Offsets, widest: int) -> list[tuple[int, int]]:
        """First and last piece of every place that says an answer in at most `widest` pieces.

        A run of pieces is meant whose text is right by the official rule. Of the runs that differ
        in articles and punctuation around an answer only one is named: as the answer is written, or
        else the least.
        """
        ...


def accepted(question: Question) -> Accepted:
    """The finder for a question's answers."""
    if question.expression:
        return _Expressions(question.answers)
    return _Texts(question.answers)


def says_answer(answers: Accepted, store: PassageStore, passage: int) -> bool:
    """Whether the body of a passage says an answer, however wide it stands there."""
    body = store.body(passage)
    if not answers.may_be_in(body):
        return False
    offsets = store.body_offsets(passage)
    return bool(answers.spans(body, offsets, len(offsets)))


class _Texts:
    """Answers as texts: equal once normalised. One that normalises to nothing is never found."""

    def __init__(self, answers: tuple[str, ...]):
        self._written = {normalise_answer(a): folded(a.strip()) for a in reversed(answers)}
        self._written.pop("", None)
        self._longest_words = {max(form.split(), key=len) for form in self._written}

    def may_be_in(self, body: str) -> bool:
        """Whether the longest word of an answer is there, punctuation apart."""
        text = plain(body)
        return any(word in text for word in self._longest_words)

    def spans(self, body: str, offsets: Offsets, widest: int) -> list[tuple[int, int]]:
        """See `Accepted.spans`."""
        bounds = offsets.tolist()
        forms = _forms(body, bounds)
        ends = list(accumulate(map(len, forms)))
        text = "".join(forms)
        # Pieces without a form share their end with the piece before: the first one is meant, and
        # so is the last one of those that begin at the same character.
        first_at = {
            end - len(form): i for i, (form, end) in enumerate(zip(forms, ends, strict=True))
        }
        last_at = {end: i for i, (form, end) in enumerate(zip(forms, ends, strict=True)) if form}
        found = set()
        for form, written in self._written.items():
            for at, stop in _occurrences(form.replace(" ", ""), text):
                first, last = first_at.get(at), last_at.get(stop)
                if first is not None and last is not None:
                    around = _with_empty_ends(forms, first, last, len(written))
                    fits = [(i, j) for i, j in around if j - i < widest]
                    texts = [body[bounds[i][0] : bounds[j][1]] for i, j in fits]
                    found |= set(_best(fits, texts, form, written))
        return sorted(found)


class _Expressions:
    """Answers as regular expressions: right is what one matches from its first character on."""

    def __init__(self, patterns: tuple[str, ...]):
        self._expressions = [Expression(pattern) for pattern in patterns]

    def may_be_in(self, body: str) -> bool:
        """Whether an expression matches anywhere."""
        return any(expression.found_in(body) for expression in self._expressions)

    def spans(self, body: str, offsets: Offsets, widest: int) -> list[tuple[int, int]]:
        """See `Accepted.spans`; the match is cut at `widest` pieces before, not after it is made.

        So an expression that would run on to the end of the passage finds its shorter forms too.
        """
        piece_at = {start: piece for piece, start in enumerate(offsets[:, 0].tolist())}
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
    """What each piece adds to the normalised text, spaces apart; "" for articles."""
    forms = [plain(body[start:stop]) for start, stop in bounds]
    gaps = [before[1] < after[0] for before, after in pairwise(bounds)]
    spaced = forms[:1]
    spaced += [" " + form if gap else form for form, gap in zip(forms[1:], gaps, strict=True)]
    text = without_articles("".join(spaced))
    ends = accumulate(map(len, spaced))
    return [
        text[end - len(form) : end].replace(" ", "") for form, end in zip(forms, ends, strict=True)
    ]


def _occurrences(needle: str, text: str) -> list[tuple[int, int]]:
    found, at = [], text.find(needle)
    while at >= 0:
        found.append((at, at + len(needle)))
        at = text.find(needle, at + 1)
    return found


def _with_empty_ends(forms: list[str], first: int, last: int, most: int) -> list[tuple[int, int]]:
    """A span, and it with up to `most` of the pieces beside it that normalise to nothing."""
    lefts = [first, *takewhile(lambda i: not forms[i], range(first - 1, -1, -1))]
    rights = [last, *takewhile(lambda i: not forms[i], range(last + 1, len(forms)))]
    return list(product(lefts[: most + 1], rights[: most + 1]))


def _best(
    spans: list[tuple[int, int]], texts: list[str], form: str, written: str
) -> list[tuple[int, int]]:
    """The span whose text is as the answer is written, or else the first that is right; or none."""
    as_written = (s for s, text in zip(spans, texts, strict=True) if folded(text) == written)
    right = (s for s, text in zip(spans, texts, strict=True) if normalise_answer(text) == form)
    return list(islice(chain(as_written, right), 1))
