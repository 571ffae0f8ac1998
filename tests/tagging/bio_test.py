"""BIO tags: entities of valid and invalid sequences, and decoding of the best sequence."""

import itertools

import numpy as np
import pytest

from realm_jax.tagging.bio import ADJACENT_PENALTY, decode, entities, labels, split_tag, tags_of


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("I-LOC I-LOC", [("LOC", 0, 2)]),  # IOB1
        ("O I-LOC O", [("LOC", 1, 2)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("O I-LOC I-PER B-PER O", [("LOC", 1, 2), ("PER", 2, 3), ("PER", 3, 4)]),
        ("B-MISC-X I-MISC-X I-MISC", [("MISC-X", 0, 2), ("MISC", 2, 3)]),
        ("", []),
    ],
)
def test_entities_of_tag_sequences(tags, found):
    assert entities(tags.split()) == found
    again = tags_of(entities(tags.split()), len(tags.split()))
    assert entities(again) == found
    assert all(tag[0] != "I" or before != "O" for before, tag in itertools.pairwise(["O", *again]))


@pytest.mark.parametrize("tag", ["X-PER", "b-PER", "PER", "BI", "", "B_PER", "E-LOC"])
def test_an_invalid_tag_is_refused(tag):
    assert split_tag(tag) is None
    with pytest.raises(ValueError, match="expected O, B-TYPE or I-TYPE"):
        entities(["O", tag])


def test_labels_have_a_fixed_order():
    assert labels("LOC PER") == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def allowed(sequence, begins, names):
    for place, label in enumerate(sequence):
        kind, type_ = split_tag(names[label])
        before = split_tag(names[sequence[place - 1]]) if place and not begins[place] else ("O", "")
        if kind == "I" and (before[0] == "O" or before[1] != type_):
            return False
    return True


def value(scores, begins, sequence, names):
    """Sums the scores, minus a cost per entity that directly follows one of the same type."""
    total = sum(scores[i, label] for i, label in enumerate(sequence))
    for place in range(1, len(sequence)):
        before, own = (split_tag(names[label]) for label in sequence[place - 1 : place + 1])
        again = own[0] == "B" and before[0] != "O" and before[1] == own[1]
        total -= ADJACENT_PENALTY * (again and not begins[place])
    return total


def test_decoding_finds_the_best_valid_sequence():
    names, length = labels("A B"), 5
    rng = np.random.default_rng(0)
    scores = 3 * rng.normal(size=(20, length, len(names))).astype(np.float32)
    begins = rng.random((20, length)) < 0.3
    begins[:, 0] = True
    found = decode(scores, begins)
    greedy_fails = 0
    for own, starts, chosen in zip(scores, begins, found, strict=True):
        candidates = [
            sequence
            for sequence in itertools.product(range(len(names)), repeat=length)
            if allowed(sequence, starts, names)
        ]
        totals = [value(own, starts, sequence, names) for sequence in candidates]
        assert tuple(chosen.tolist()) == candidates[int(np.argmax(totals))]
        greedy_fails += not allowed(own.argmax(-1), starts, names)
    assert greedy_fails > 5


def test_adjacent_entities_of_one_type_need_a_clear_score():
    scores = np.log(np.array([[[0.1, 0.8, 0.1], [0.1, 0.6, 0.3]]], np.float32))  # O B I
    assert decode(scores, np.array([[True, False]])).tolist() == [[1, 2]]
    assert decode(scores, np.array([[True, True]])).tolist() == [[1, 1]]  # another sentence
    sure = np.log(np.array([[[0.0005, 0.999, 0.0005], [0.0005, 0.999, 0.0005]]], np.float32))
    assert decode(sure, np.array([[True, False]])).tolist() == [[1, 1]]


def test_padding_does_not_change_tags_and_empty_input_has_none():
    scores = np.random.default_rng(1).normal(size=(3, 4, 5)).astype(np.float32)
    begins = np.zeros((3, 4), bool)
    begins[:, 0] = True
    padded = np.pad(scores, ((0, 0), (0, 3), (0, 0)))
    long = decode(padded, np.pad(begins, ((0, 0), (0, 3))))
    np.testing.assert_array_equal(long[:, :4], decode(scores, begins))
    assert decode(scores[:, :0], begins[:, :0]).shape == (3, 0)
