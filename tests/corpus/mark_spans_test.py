"""Marking by rules: names, dates, quantities, and rare terms where these are few."""

import pytest

from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.rare_terms import RareTerms
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages

COMMON = "the flow over this plate was measured again"


@pytest.fixture
def corpus(tmp_path, vocabulary):
    """Function from bodies to a corpus of one-sentence passages."""

    def corpus(bodies):
        texts = [("", [f"{body}."]) for body in bodies]
        write_passages(tmp_path / "corpus", texts, vocabulary)
        return PassageStore.open(tmp_path / "corpus")

    return corpus


def marked(store, spans):
    """The marked text of each passage."""
    found = []
    for i in range(len(store)):
        offsets, body = store.body_offsets(i), store.body(i)
        found.append([body[offsets[a, 0] : offsets[b - 1, 1]] for a, b in spans.of(i).tolist()])
    return found


def test_lower_cased_text_has_its_rare_terms_marked(corpus):
    bodies = [COMMON] * 300
    bodies[7] += " near an oblique shock"
    bodies[250] += " behind the oblique wedge"
    store = corpus(bodies)
    spans = mark_spans(store)
    found = marked(store, spans)
    assert found[7] == ["oblique"] and found[250] == ["oblique"]
    assert spans.rows.tolist() == [7, 250]  # `shock` is in one passage, COMMON in all
    assert spans.manifest["kinds"]["rare terms"] == 2


def test_added_passages_have_the_rare_terms_of_the_corpus_marked(corpus):
    bodies = [COMMON] * 300
    bodies[7] += " near an oblique shock"
    bodies[250] += " behind the oblique wedge"
    store = corpus(bodies)
    mark_spans(store)
    edited = WrittenText(7, "", f"{bodies[7]} twice.")
    common = [WrittenText(None, "", f"{COMMON} and again.") for _ in range(3)]
    for texts in ([edited], common):
        write_passages_generation(store.path, texts)
    compact(store.path)
    write_passages_generation(store.path, [WrittenText(None, "", f"{COMMON} by an oblique.")])
    grown = PassageStore.open(store.path)
    found = marked(grown, SpanStore.open(None, grown))
    assert found[7] == found[250] == found[-1] == ["oblique"]
    assert sum(map(len, found)) == 3


def test_text_with_names_has_no_rare_terms_marked(corpus):
    bodies = ["In 1999 the oblique plate of Vienna was 3 mm"] * 3
    store = corpus(bodies)
    spans = mark_spans(store)
    assert marked(store, spans) == [["1999", "Vienna", "3 mm"]] * 3
    assert spans.manifest["kinds"] == {"dates": 3, "quantities": 3, "names": 3}


@pytest.mark.parametrize(("passages", "rare"), [(1, False), (2, True), (3, True), (4, False)])
def test_a_rare_term_is_in_two_passages_to_one_per_cent(corpus, passages, rare):
    """One per cent of 100 passages is one, so the bound of small corpora holds: three."""
    bodies = [f"{COMMON} oblique" if i < passages else COMMON for i in range(100)]
    terms = RareTerms.of(corpus(bodies))
    assert bool(terms.spans("an OBLIQUE wave")) == rare


def test_number_of_workers_does_not_change_the_spans(corpus, tmp_path):
    store = corpus([f"{COMMON} word{'abcdefgh'[i % 8]}" for i in range(40)])
    one = mark_spans(store, tmp_path / "one")
    two = mark_spans(store, tmp_path / "two", workers=2)
    assert marked(store, one) == marked(store, two)
    assert one.manifest["kinds"] == two.manifest["kinds"]


def test_the_count_of_a_word_is_that_of_its_passages_not_of_its_uses(corpus):
    store = corpus(["again oblique " * 50, *[COMMON] * 300])
    assert RareTerms.of(store).spans("oblique") == []
