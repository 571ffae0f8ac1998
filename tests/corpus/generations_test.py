"""A corpus grows in generations, and each of them is read as one passage store."""

import pickle
import shutil

import numpy as np
import pytest

from realm_jax.corpus import generation_retention, generation_writer, lineage
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generation_files import finished_generations
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.mark_spans import mark_spans, salient
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.corpus.store_writer import write_passages, write_store
from realm_jax.errors import InputError


@pytest.fixture
def store(tmp_path, documents, vocabulary):
    """A corpus of a few dozen passages."""
    write_store(tmp_path / "store", documents[:6], vocabulary, passage_pieces=64)
    return PassageStore.open(tmp_path / "store")


def texts(store):
    """Title and body of every passage that exists, by id."""
    return {i: (store.title(i), store.body(i)) for i in store.live_ids().tolist()}


def check_arrays(store):
    """The arrays for many passages agree with the methods for one."""
    ids = np.arange(len(store))
    starts, stops = store.body_bounds(ids)
    title_starts, title_stops = store.title_bounds(ids)
    for i in ids.tolist():
        assert store.flat[starts[i] : stops[i]].tolist() == store.body_ids(i).tolist()
        assert store.flat[np.arange(starts[i], stops[i])].tolist() == store.body_ids(i).tolist()
        assert store.flat[title_starts[i] : title_stops[i]].tolist() == store.title_ids(i).tolist()
        [(pieces, offsets)] = store.vocabulary.pieces([store.body(i)])
        assert store.body_ids(i).tolist() == pieces.tolist()
        assert store.body_offsets(i).tolist() == offsets.tolist()
    sizes = stops - starts + title_stops - title_starts + 3
    assert store.lengths().tolist() == sizes.tolist()
    bounds = [np.diff(store.sentences(i)) for i in ids.tolist()]
    assert sorted(store.sentence_lengths()) == sorted(np.concatenate(bounds))
    live = store.is_live(np.arange(-1, len(store) + 1))
    assert np.flatnonzero(live[1:]).tolist() == store.live_ids().tolist()


def test_passages_are_added_replaced_and_removed(store):
    before, size = texts(store), len(store)
    written = [WrittenText(None, "New", "A café."), WrittenText(3, "Other", "Old river.")]
    summary = write_passages_generation(store.path, written, removed=[5])
    grown = PassageStore.open(store.path)
    assert (summary.added, summary.replaced, summary.removed) == (1, 1, 1)
    assert summary.passages == grown.passages() == size
    assert summary.ids == (size, 3)
    wanted = {**before, size: ("New", "A café."), 3: ("Other", "Old river.")}
    del wanted[5]
    assert texts(grown) == wanted
    check_arrays(grown)
    assert grown.document_id(3) == store.document_id(3)
    assert grown.document_id(2) == store.document_id(2)
    assert grown.document_id(size) == grown.document_id(5) == ""
    assert grown.generation == 2
    assert grown.lineage == (store.corpus_hash, grown.corpus_hash)
    assert grown.changed_since(1).tolist() == [3, 5, size]
    assert grown.changed_since(2).tolist() == []
    first = PassageStore.open(store.path, generation=1)
    assert (texts(first), first.corpus_hash) == (before, store.corpus_hash)
    for one in (first, grown):
        assert texts(pickle.loads(pickle.dumps(one))) == texts(one)


def test_equal_texts_publish_nothing_and_wrong_ones_are_refused(store):
    same = WrittenText(2, store.title(2), store.body(2))
    assert write_passages_generation(store.path, [same]).generation == 1
    for written, removed, error in (
        ([WrittenText(len(store), "a", "river")], [], "no such passage"),
        ([], [len(store)], "no such passage"),
        ([WrittenText(1, "a", "river")], [1], "two changes"),
        ([WrittenText(1, "a", "river"), WrittenText(1, "a", "lake")], [], "two changes"),
        ([WrittenText(None, "a", "\u200b")], [], "without text"),
        ([], range(len(store)), "at least one passage"),
    ):
        with pytest.raises(InputError, match=error):
            write_passages_generation(store.path, written, removed)
    assert PassageStore.open(store.path).generation == 1


def test_the_newest_generation_shares_what_is_opened_unless_the_corpus_was_built_again(
    store, tmp_path, documents, vocabulary, monkeypatch
):
    monkeypatch.setattr(generation_writer, "MOST_LAYERS", 3)
    for n in range(6):  # two of them merge
        write_passages_generation(store, [WrittenText(n, "E", f"flows {n} near")], [n + 6])
        before, store = store, store.newest()
        assert texts(store) == texts(PassageStore.open(store.path))
        assert store.newest() is store
        assert store._opened[1] == ((None, before) if n == 0 else before._opened[1])
    compact(store.path)
    assert texts(store.newest()) == texts(store)
    shutil.rmtree(store.path)
    write_store(tmp_path / "store", documents[:2], vocabulary, passage_pieces=64)
    write_passages_generation(store.path, [WrittenText(0, "E", "flows again near")])
    again = store.newest()
    assert texts(again) == texts(PassageStore.open(store.path)) != texts(store)


def test_many_generations_are_merged_and_ids_stay(store, monkeypatch):
    monkeypatch.setattr(generation_writer, "MOST_LAYERS", 3)
    monkeypatch.setattr(generation_retention, "KEPT_GENERATIONS", 4)
    monkeypatch.setattr(lineage, "OF_FILE", 3)
    model, size = texts(store), len(store)
    hashes = [store.corpus_hash]
    for n in range(8):
        i, gone = n % 7, 10 + n % 3
        written = [WrittenText(None, "N", f"old river {n}"), WrittenText(i, "E", f"flows {n}")]
        removed = [gone] if gone in model else []
        summary = write_passages_generation(store.path, written, removed)
        model = {**model, size + n: written[0][1:], i: written[1][1:]}
        model.pop(gone, None)
        grown = PassageStore.open(store.path)
        assert (texts(grown), len(grown.layers) <= 3) == (model, True)
        assert grown.lineage[-1] == grown.corpus_hash == summary.corpus_hash
        assert grown.lineage[: len(hashes)] == tuple(hashes)
        assert len(grown.lineage) == grown.generation
        assert len(grown.manifest["recent"]) <= 3
        hashes = list(grown.lineage)
    check_arrays(grown)
    assert len(set(hashes)) == 9
    kept = finished_generations(store.path)
    assert 4 <= len(kept) <= 4 + 3
    for generation in kept[-4:]:
        earlier = PassageStore.open(store.path, generation)
        assert earlier.corpus_hash == hashes[generation - 1]
        assert len(texts(earlier)) == earlier.passages()
    with pytest.raises(InputError, match="no such generation"):
        PassageStore.open(store.path, generation=2)
    assert verify(store.path) == []
    changed = grown.changed_since(1)
    assert changed.tolist() == [*range(7), 10, 11, 12, *range(size, size + 8)]
    assert grown.changed_since(grown.generation - 1).tolist() == [0, size + 7]


def test_added_passages_are_marked_like_those_of_the_corpus(store, monkeypatch):
    monkeypatch.setattr(generation_writer, "MOST_LAYERS", 3)
    marked = mark_spans(store)
    before = {i: marked.of(i).tolist() for i in range(len(store))}
    text = "The river was seen in March 1848 near Berlin."
    for n in range(4):
        write_passages_generation(
            store.path, [WrittenText(None, "N", text), WrittenText(n, "E", text)], [9 + n]
        )
    compacted = PassageStore.open(store.path).generation
    for _ in range(2):
        grown = PassageStore.open(store.path)
        spans = pickle.loads(pickle.dumps(SpanStore.open(None, grown)))
        expected = [salient(grown, i) for i in range(len(grown))]
        assert [[*map(tuple, spans.of(i).tolist())] for i in range(len(grown))] == expected
        assert any(expected[:4]) and any(expected[len(store) :]) and not any(expected[9:13])
        assert spans.rows.tolist() == [i for i, found in enumerate(expected) if found]
        assert spans.source.tolist() == list(range(len(grown)))
        assert {i: spans.of(i).tolist() for i in range(13, len(store))} == {
            i: before[i] for i in range(13, len(store))
        }
        compact(store.path)
    assert PassageStore.open(store.path).generation > compacted
    assert verify(store.path) == []


def test_links_to_a_knowledge_corpus_follow_its_generations(store, tmp_path, vocabulary):
    """`source` and `evidence` of X, after Z has grown."""
    given = [(store.title(i), [store.body(i)]) for i in range(3)]
    write_passages(tmp_path / "z", [given[0], ("Z", ["Old river."])], vocabulary)
    write_passages(tmp_path / "x", given, vocabulary)
    x, z = PassageStore.open(tmp_path / "x"), PassageStore.open(tmp_path / "z")
    evidence = np.array([1, 0, -1])
    spans = SpanStore.write(
        None, x, [[]] * 3, source=np.array([0, -1, -1]), evidence=evidence, knowledge=z
    )
    new = WrittenText(None, given[2][0], given[2][1][0])
    write_passages_generation(z.path, [new, WrittenText(1, "Z", "Other facts.")])
    spans.follow(PassageStore.open(z.path))
    assert spans.source.tolist() == [0, -1, 2]
    assert spans.evidence.tolist() == [-1, 0, -1]
    write_passages_generation(x.path, [WrittenText(0, "X", "Changed.")])
    grown = SpanStore.open(None, PassageStore.open(x.path))
    grown.follow(PassageStore.open(z.path))
    assert grown.source.tolist() == [-1, -1, 2]
    assert grown.evidence.tolist() == [-1, 0, -1]
