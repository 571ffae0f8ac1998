"""Entity scores equal those of conlleval and those of a second, simpler scorer.

`conlleval.txt` is the output of conlleval (version 2004-01-26) for `predictions.txt`, a handwritten
file with every kind of tagging error that conlleval distinguishes.
"""

import random
from pathlib import Path

import pytest

from realm_jax.tagging.conll import read_predictions
from realm_jax.tagging.conlleval import score

HERE = Path(__file__).parent


def test_the_report_equals_conllevals_output():
    figures = score(read_predictions(str(HERE / "predictions.txt")))
    assert str(figures) == (HERE / "conlleval.txt").read_text()


def test_json_has_the_same_numbers():
    report = score(read_predictions(str(HERE / "predictions.txt"))).as_json()
    assert (report["tokens"], report["phrases"], report["found"], report["correct"]) == (
        38,
        17,
        19,
        7,
    )
    assert report["fb1"] == pytest.approx(2 * 7 / (17 + 19) * 100)
    assert report["by_type"]["LOC"]["recall"] == pytest.approx(100 * 4 / 6)


def test_scores_without_any_entity():
    none = score([(["O"], ["O"])])
    assert (none.total.precision, none.total.recall, none.total.fb1) == (0, 0, 0)
    assert none.accuracy == 100
    assert str(score([])) == "processed 0 tokens with 0 phrases; found: 0 phrases; correct: 0.\n"


def test_sequences_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        score([(["O", "O"], ["O"])])


def simple(tags):
    """Returns (first, last, type) of each entity."""
    found = set()
    for first, tag in enumerate(tags):
        before = tags[first - 1] if first else "O"
        if tag == "O" or (tag[0] == "I" and before[1:] == tag[1:]):
            continue
        last = first
        while last + 1 < len(tags) and tags[last + 1] == f"I{tag[1:]}":
            last += 1
        found.add((first, last, tag[2:]))
    return found


def test_scores_equal_those_of_a_simpler_scorer():
    rng = random.Random(0)
    tags = ["O", "B-A", "I-A", "B-B", "I-B"]
    sentences = [
        (rng.choices(tags, k=n), rng.choices(tags, k=n)) for n in rng.choices(range(12), k=500)
    ]
    gold = [simple(truth) for truth, _ in sentences]
    found = [simple(guess) for _, guess in sentences]
    correct = sum(len(a & b) for a, b in zip(gold, found, strict=True))
    figures = score(sentences)
    assert figures.total.correct == correct > 100
    assert figures.total.recall == pytest.approx(100 * correct / sum(map(len, gold)))
    assert figures.total.precision == pytest.approx(100 * correct / sum(map(len, found)))
