"""Spans: piece ranges, the corpus they belong to, and marking by rules."""

import numpy as np
import pytest

from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import InputError, MismatchError


@pytest.mark.parametrize(
    ("characters", "pieces"),
    [((6, 13), (1, 3)), ((7, 13), (2, 3)), ((0, 5), (0, 1)), ((0, 13), (0, 3)), ((5, 6), None)],
)
def test_only_pieces_fully_inside_a_span_count(characters, pieces):
    offsets = np.array([(0, 5), (6, 8), (9, 13)], np.int32)
    assert char_spans_to_pieces(offsets, [characters]) == ([pieces] if pieces else [])


def test_spans_are_read_as_written(store):
    spans = [[(0, 1)] if i % 3 else [] for i in range(len(store))]
    source = np.arange(len(store))[::-1]
    written = SpanStore.write(None, store, iter(spans), source=source)
    opened = SpanStore.open(None, store)
    assert opened.path == written.path == store.path / "spans"
    assert [opened.of(i).tolist() for i in range(3)] == [[], [[0, 1]], [[0, 1]]]
    assert opened.of(0).shape == (0, 2)
    assert opened.rows.tolist() == [i for i in range(len(store)) if i % 3]
    assert opened.source.tolist() == source.tolist()
    assert opened.evidence is None
    assert opened.knowledge_hash == store.corpus_hash
    assert opened.verify() == []


def test_store_with_spans_inside_is_verified(store):
    SpanStore.write(None, store, [[]] * len(store))
    assert PassageStore.open(store.path).verify() == []


def test_spans_of_another_corpus_are_refused_with_both_hashes(store, tmp_path, vocabulary):
    SpanStore.write(tmp_path / "spans", store, [[]] * len(store))
    write_passages(tmp_path / "other", [("A", ["The river."])], vocabulary)
    other = PassageStore.open(tmp_path / "other")
    with pytest.raises(MismatchError) as error:
        SpanStore.open(tmp_path / "spans", other)
    assert store.corpus_hash in str(error.value)
    assert other.corpus_hash in str(error.value)


@pytest.mark.parametrize("span", [(-1, 1), (1, 1), (0, 10_000)])
def test_span_outside_its_body_is_refused(store, tmp_path, span):
    spans = [[]] * 2 + [[span]] + [[]] * (len(store) - 3)
    with pytest.raises(InputError, match="passage 2"):
        SpanStore.write(tmp_path / "spans", store, spans)
    with pytest.raises(InputError, match="unfinished"):
        SpanStore.open(tmp_path / "spans", store)


def test_wrong_number_of_spans_or_ids_is_refused(store, tmp_path):
    for spans in ([[]] * (len(store) - 1), [[]] * (len(store) + 1)):
        with pytest.raises(InputError, match="one sequence of spans per passage"):
            SpanStore.write(tmp_path / "a", store, spans)
    for source in (np.zeros(3, int), np.full(len(store), len(store)), np.full(len(store), -2)):
        with pytest.raises(InputError, match=r"own\.npy"):
            SpanStore.write(tmp_path / "a", store, [[]] * len(store), source=source)


def test_names_and_dates_are_marked_within_sentences(tmp_path, vocabulary):
    sentences = ["The Danube flows near Vienna.", "In 1848 the old king met Berlin."]
    write_passages(tmp_path / "s", [("River", sentences), ("River", ["The old."])], vocabulary)
    store = PassageStore.open(tmp_path / "s")
    spans = mark_spans(store)
    body, offsets = store.body(0), store.body_offsets(0)
    found = [body[offsets[a, 0] : offsets[b - 1, 1]] for a, b in spans.of(0)]
    assert found == ["Danube", "Vienna", "1848", "Berlin"]
    assert spans.rows.tolist() == [0]
    assert spans.source.tolist() == [0, 1]


def test_marked_spans_never_cross_sentences_or_overlap(store):
    spans = mark_spans(store)
    for i in spans.rows.tolist():
        bounds = store.sentences(i)
        last = 0
        for start, stop in spans.of(i).tolist():
            assert last <= start < stop
            assert stop <= bounds[np.searchsorted(bounds, start, "right")]
            last = stop


def test_marked_spans_do_not_depend_on_the_number_of_workers(store, tmp_path, monkeypatch):
    monkeypatch.setattr("realm_jax.corpus.mark_spans._ROWS", 20)
    done = []
    one = mark_spans(store, tmp_path / "one", progress=done.append)
    two = mark_spans(store, tmp_path / "two", workers=2)
    assert done == [*range(20, len(store), 20), len(store)]
    for name in ("spans.npy", "span_starts.npy", "own.npy"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()


def test_source_passages_are_found_in_another_knowledge_corpus(store, tmp_path, vocabulary):
    copied = [2, 7, 5, 5]  # the last two are identical: the first of them is the source
    passages = [(store.title(i), [store.body(i)]) for i in copied]
    write_passages(tmp_path / "z", [*passages, ("News", ["The river."])], vocabulary)
    knowledge = PassageStore.open(tmp_path / "z")
    spans = mark_spans(store, knowledge=knowledge)
    expected = np.full(len(store), -1)
    expected[[2, 7, 5]] = 0, 1, 2
    assert spans.source.tolist() == expected.tolist()
    assert spans.knowledge_hash == knowledge.corpus_hash != store.corpus_hash
    assert SpanStore.open(None, store).source.tolist() == expected.tolist()
