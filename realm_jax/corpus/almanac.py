"""The built-in corpus: real facts as prose, so that the whole road runs on a closed machine.

Knowledge passages Z state every fact. Pre-training sentences X and questions state the facts that
are not held out, in other words than Z does (as news differs from an encyclopedia); the held-out
sentences and questions measure what was learned. Nothing here is random.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from realm_jax.corpus.almanac_facts import Fact

FACTS_PER_PASSAGE = 5

_ARTICLE = {
    "name": "{subject}",
    "currency": "Currencies of {subject}",
    "language": "Languages of {subject}",
    "city": "Cities of {answer}",
}
_KNOWLEDGE = {
    "name": (
        "In {qualifier}, {subject} is {answer}.",
        "The {qualifier} name of {subject} is {answer}.",
    ),
    "currency": ("The money of {subject} {qualifier} was the {answer}.",),
    "language": ("Of the people of {subject}, the part that speaks {qualifier} is {answer}.",),
    "city": ("A city with a clock of its own is {subject}, in the land of {answer}.",),
}
_PRETRAINING = {
    "name": (
        "{qualifier} speakers call {subject} {answer}.",
        "Translated into {qualifier}, {subject} becomes {answer}.",
        "{answer} is how one says {subject} in {qualifier}.",
    ),
    "currency": ("Shops in {subject} took the {answer} {qualifier}.",),
    "language": ("Among those who live in {subject}, {answer} talk {qualifier} at home.",),
    "city": ("Someone who sets a watch in {subject} lives in {answer}.",),
}
_QUESTION = {
    "name": ("What is {subject} called in {qualifier}?",),
    "currency": ("Which currency did {subject} use {qualifier}?",),
    "language": ("What share of the people of {subject} speaks {qualifier}?",),
    "city": ("In which country lies {subject}?",),
}


@dataclass(frozen=True)
class Sentence:
    """A pre-training sentence; `span` holds the characters of its answer, `passage` the id in Z."""

    text: str
    span: tuple[int, int]
    passage: int


@dataclass(frozen=True)
class Question:
    """A question with its one answer and the id of the passage in Z that states it."""

    text: str
    answer: str
    passage: int


@dataclass(frozen=True)
class Almanac:
    """Z as (title, sentences) pairs in passage order; X and questions, training and held out."""

    passages: list[tuple[str, list[str]]]
    sentences: list[Sentence]
    questions: list[Question]
    held_out_sentences: list[Sentence]
    held_out_questions: list[Question]


def write_almanac(facts: Iterable[Fact]) -> Almanac:
    """Prose for the facts; the n-th held-out sentence and question are about the same fact."""
    almanac = Almanac([], [], [], [], [])
    for number, (title, chunk) in enumerate(_chunks(facts)):
        almanac.passages.append((title, [_fill(_KNOWLEDGE, fact)[0] for fact in chunk]))
        for fact in chunk:
            text, span = _fill(_PRETRAINING, fact)
            sentence = Sentence(text, span, number)
            question = Question(_fill(_QUESTION, fact)[0], fact.answer, number)
            held = fact.held_out
            (almanac.held_out_sentences if held else almanac.sentences).append(sentence)
            (almanac.held_out_questions if held else almanac.questions).append(question)
    return almanac


def _chunks(facts: Iterable[Fact]) -> Iterator[tuple[str, list[Fact]]]:
    articles: dict[str, list[Fact]] = {}
    for fact in facts:
        articles.setdefault(_ARTICLE[fact.relation].format(**vars(fact)), []).append(fact)
    for title, members in articles.items():
        for start in range(0, len(members), FACTS_PER_PASSAGE):
            yield title, members[start : start + FACTS_PER_PASSAGE]


def _fill(templates: dict[str, tuple[str, ...]], fact: Fact) -> tuple[str, tuple[int, int]]:
    """The sentence for a fact, and the characters in it that are the answer."""
    choices = templates[fact.relation]
    template = choices[zlib.crc32(f"wording|{fact.key}".encode()) % len(choices)]
    before, blank, after = template.partition("{answer}")
    before, after = before.format(**vars(fact)), after.format(**vars(fact))
    answer = fact.answer if blank else ""
    text = before + answer + after
    return text[0].upper() + text[1:], (len(before), len(before) + len(answer))
