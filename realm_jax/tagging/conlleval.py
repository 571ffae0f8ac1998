"""Entity scores as computed by conlleval (Tjong Kim Sang, 2004), the scorer of CoNLL-2003.

A predicted entity is correct if its first word, last word and type are correct. Precision, recall
and their harmonic mean FB1 are computed over all entities of the file. Accuracy is the share of
words with the correct tag.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from realm_jax.tagging.bio import entities


@dataclass(frozen=True)
class Counts:
    """Numbers of true, predicted and correct entities; scores are percentages."""

    gold: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        """Percentage of predicted entities that are correct; 0 if there are none."""
        return _percent(self.correct, self.found)

    @property
    def recall(self) -> float:
        """Percentage of true entities that were found; 0 if there are none."""
        return _percent(self.correct, self.gold)

    @property
    def fb1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def as_json(self) -> dict[str, float]:
        """Scores and counts."""
        scores = {"precision": self.precision, "recall": self.recall, "fb1": self.fb1}
        return scores | {"phrases": self.gold, "found": self.found, "correct": self.correct}


@dataclass(frozen=True)
class Scores:
    """Scores of one file: number of words, correct tags, entity counts in total and by type."""

    tokens: int
    correct_tags: int
    total: Counts
    by_type: dict[str, Counts]

    @property
    def accuracy(self) -> float:
        """Percentage of words with the correct tag."""
        return _percent(self.correct_tags, self.tokens)

    def as_json(self) -> dict[str, Any]:
        """All scores under conlleval's names."""
        by_type = {name: counts.as_json() for name, counts in self.by_type.items()}
        head = {"tokens": self.tokens, "accuracy": self.accuracy}
        return {**head, **self.total.as_json(), "by_type": by_type}

    def __str__(self) -> str:
        """The exact output of conlleval."""
        total = self.total
        lines = [
            f"processed {self.tokens} tokens with {total.gold} phrases; "
            f"found: {total.found} phrases; correct: {total.correct}."
        ]
        if self.tokens:
            lines.append(f"accuracy: {self.accuracy:6.2f}%; {_line(total)}")
        lines += [f"{name:>17}: {_line(c)}  {c.found}" for name, c in self.by_type.items()]
        return "\n".join(lines) + "\n"


def score(sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Scores:
    """Scores (true tags, predicted tags) pairs of all sentences.

    Raises:
      ValueError: a pair differs in length, or a tag is invalid.
    """
    gold: Counter[str] = Counter()
    found: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    tokens = correct_tags = 0
    for truth, guess in sentences:
        tokens += len(truth)
        correct_tags += sum(a == b for a, b in zip(truth, guess, strict=True))
        true_entities, found_entities = entities(truth), entities(guess)
        gold.update(entity.type for entity in true_entities)
        found.update(entity.type for entity in found_entities)
        correct.update(entity.type for entity in set(true_entities) & set(found_entities))
    names = sorted(gold.keys() | found.keys())
    by_type = {name: Counts(gold[name], found[name], correct[name]) for name in names}
    return Scores(
        tokens, correct_tags, Counts(gold.total(), found.total(), correct.total()), by_type
    )


def _line(counts: Counts) -> str:
    return (
        f"precision: {counts.precision:6.2f}%; recall: {counts.recall:6.2f}%; "
        f"FB1: {counts.fb1:6.2f}"
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
