"""Differences of two versions of a corpus."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_corpus import passages, vocabulary

from realm_jax.corpus.fingerprints import CorpusDifference, difference, fingerprints
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.text.vocabulary import write_vocabulary

TEXTS = passages(12)
NEW = ("Zor", ["The capital of Zor is Zed."])
CHANGED = (TEXTS[2][0], ["The river in Ibo2 was the Obi in 1999."])

# change -> (passages, added, removed, changed)
CHANGES = {
    "none": (TEXTS, 0, 0, 0),
    "one more": ([*TEXTS, NEW], 1, 0, 0),
    "one first, so all ids move": ([NEW, *TEXTS], 1, 0, 0),
    "one less": (TEXTS[:-1], 0, 1, 0),
    "a text changed": ([*TEXTS[:2], CHANGED, *TEXTS[3:]], 0, 0, 1),
    "a title changed": ([("Zor", TEXTS[0][1]), *TEXTS[1:]], 1, 1, 0),
    "another case": ([(TEXTS[0][0].upper(), TEXTS[0][1]), *TEXTS[1:]], 1, 1, 0),
    "a copy more": ([*TEXTS, TEXTS[0]], 1, 0, 0),
    "another order": (TEXTS[::-1], 0, 0, 0),
    "all at once": ([NEW, *TEXTS[:2], CHANGED, *TEXTS[3:-1]], 1, 1, 1),
    "all others": ([NEW], 1, 12, 0),
}


def of(folder, texts):
    """The fingerprints of a new corpus."""
    write_vocabulary(folder / "vocab.txt", vocabulary())
    write_passages(folder / "corpus", texts, folder / "vocab.txt")
    return fingerprints(PassageStore.open(folder / "corpus"))


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return of(tmp_path_factory.mktemp("old"), TEXTS)


@pytest.mark.parametrize("change", CHANGES)
def test_passages_are_compared_by_title_and_text(old, tmp_path, change):
    texts, *counts = CHANGES[change]
    new = of(tmp_path, texts)
    assert difference(old, new) == CorpusDifference(*counts)
    added, removed, changed = counts
    assert difference(new, old) == CorpusDifference(removed, added, changed)


def _corpus(pairs):
    """Titles and texts; a text belongs to one title."""
    return np.array([(title, 10 * title + text) for title, text in pairs], np.uint64).reshape(-1, 2)


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)))


@given(PAIRS, PAIRS)
def test_the_counts_explain_the_sizes_of_both_versions(one, other):
    found = difference(_corpus(one), _corpus(other))
    assert len(other) - len(one) == found.added - found.removed
    assert min(found.added, found.removed, found.changed) >= 0
    same = sorted(one) == sorted(other)
    assert (found == CorpusDifference(0, 0, 0)) == same
