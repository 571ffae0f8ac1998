"""The almanac: the built-in corpus of real facts as sentences, for runs without any download.

The knowledge corpus Z states every fact. Pre-training sentences X and training questions state the
facts that are not held out, with other wordings than Z, as news differs from an encyclopedia. The
held-out sentences and questions are for evaluation. The text is deterministic.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from realm_jax.corpus.almanac_facts import Fact

FACTS_PER_SENTENCE, SENTENCES_PER_PASSAGE = 1, 2

_ARTICLE = {
    "name": "{subject}",
    "currency": "Currencies of {subject}",
    "language": "Languages of {subject}",
    "city": "Cities of {answer}",
}
_KNOWLEDGE_OPENING = {
    "name": ("The name of {subject} is", "People call {subject}", "One says for {subject}"),
    "currency": ("The money of {subject} was",),
    "language": ("Of the people of {subject},",),
    "city": ("Clocks of {answer} are kept for",),
}
_KNOWLEDGE_FACT = {
    "name": "in {qualifier} {answer}",
    "currency": "{qualifier} the {answer}",
    "language": "{qualifier} is spoken by {answer}",
    "city": "{subject} in {answer}",
}
_PRETRAINING = {
    "name": (
        "In {qualifier}, people call {subject} {answer}.",
        "One says {answer} in {qualifier} for {subject}.",
        "{answer} is what {subject} is called in {qualifier}.",
        "What people call {subject} in {qualifier} is {answer}.",
    ),
    "currency": ("People in {subject} had {qualifier} the {answer} as money.",),
    "language": ("In {subject}, {qualifier} is spoken by {answer} of all.",),
    "city": ("The clocks of {subject} are those of a city in {answer}.",),
}
_QUESTION = {
    "name": ("What do people call {subject} in {qualifier}?",),
    "currency": ("Which currency did {subject} use {qualifier}?",),
    "language": ("What share of the people of {subject} speaks {qualifier}?",),
    "city": ("In which country lies {subject}?",),
}


@dataclass(frozen=True)
class Sentence:
    """A pre-training sentence: its answer `span` in characters, and its `passage` id in Z."""

    text: str
    span: tuple[int, int]
    passage: int


@dataclass(frozen=True)
class Question:
    """A question, its only answer, and the id of the passage in Z that states it."""

    text: str
    answer: str
    passage: int


@dataclass(frozen=True)
class Almanac:
    """Z as (title, sentences) pairs in passage order; X and questions for training and held out."""

    passages: list[tuple[str, list[str]]]
    sentences: list[Sentence]
    questions: list[Question]
    held_out_sentences: list[Sentence]
    held_out_questions: list[Question]


def write_almanac(facts: Iterable[Fact]) -> Almanac:
    """Writes the almanac; the n-th sentence and the n-th question state the same fact."""
    almanac = Almanac([], [], [], [], [])
    for number, (title, chunk) in enumerate(_chunks(facts)):
        almanac.passages.append((title, list(_knowledge(chunk))))
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
        # Hashing the order: in CLDR's order, a language predicts which other one is in its passage.
        members.sort(key=lambda fact: zlib.crc32(f"place|{fact.key}".encode()))
        for chunk in _batched(members, FACTS_PER_SENTENCE * SENTENCES_PER_PASSAGE):
            yield title, chunk


def _knowledge(facts: list[Fact]) -> Iterator[str]:
    """The sentences of one passage, whose facts share subject and relation."""
    for some in _batched(facts, FACTS_PER_SENTENCE):
        opening = _choose(_KNOWLEDGE_OPENING[some[0].relation], some[0]).format(**vars(some[0]))
        clauses = [_KNOWLEDGE_FACT[fact.relation].format(**vars(fact)) for fact in some]
        yield f"{opening} {', '.join(clauses)}."


def _batched(facts: list[Fact], size: int) -> Iterator[list[Fact]]:
    for start in range(0, len(facts), size):
        yield facts[start : start + size]


def _choose(wordings: tuple[str, ...], fact: Fact) -> str:
    return wordings[zlib.crc32(f"wording|{fact.key}".encode()) % len(wordings)]


def _fill(templates: Mapping[str, tuple[str, ...]], fact: Fact) -> tuple[str, tuple[int, int]]:
    """The sentence for a fact, and the span of its answer in characters."""
    template = _choose(templates[fact.relation], fact)
    before, blank, after = template.partition("{answer}")
    before, after = before.format(**vars(fact)), after.format(**vars(fact))
    answer = fact.answer if blank else ""
    text = before + answer + after
    return text[0].upper() + text[1:], (len(before), len(before) + len(answer))
