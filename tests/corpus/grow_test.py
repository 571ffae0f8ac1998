"""Documents are added, replaced and removed by their ids; compaction deletes their texts."""

import json
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generation_writer import staging
from realm_jax.corpus.grow import add_documents, remove_documents
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.corpus.store_writer import write_store
from realm_jax.errors import InputError


@pytest.fixture
def store(tmp_path, documents, vocabulary):
    """A corpus of a few dozen passages."""
    write_store(tmp_path / "store", documents[:6], vocabulary, passage_pieces=64)
    return PassageStore.open(tmp_path / "store")


@pytest.fixture
def add(store, tmp_path):
    def run(*documents, corpus=store.path):
        path = tmp_path / "input.jsonl"
        lines = [{"_id": name, "title": title, "text": text} for name, title, text in documents]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return add_documents(corpus, "jsonl", str(path))[0]

    return run


def by_document(store):
    """Title and body of the passages of each document id, in order; "" holds those without id."""
    found = {}
    for i in store.live_ids().tolist():
        found.setdefault(store.document_id(i), []).append((store.title(i), store.body(i)))
    return found


def long_text(seed, sentences=30):
    rng = random.Random(seed)
    return " ".join(f"The river {rng.randint(0, 9)} joins Vienna." for _ in range(sentences))


def texts_on_disk(folder, text):
    return [str(p) for p in Path(folder).rglob("*") if p.is_file() and text in p.read_bytes()]


def test_documents_are_added_replaced_and_removed(store, add):
    before = by_document(store)
    kept = next(i for i in range(len(store)) if store.document_id(i) == "é2")
    given = [("new", "N", long_text(1)), ("é2", "T", long_text(2)), ("", "No id", "Old café.")]
    summary = add(*given)
    assert (summary.added, summary.replaced, summary.removed) == (2, 1, 0)
    grown = PassageStore.open(store.path)
    assert grown.document_id(kept) == "é2"
    removed = remove_documents(store.path, ["é1", "new"])
    assert (removed.added, removed.replaced, removed.removed) == (0, 0, 2)
    found = by_document(PassageStore.open(store.path))
    expected = {**before, "é2": None}
    del expected["é1"]
    assert found.keys() == expected.keys()
    assert " ".join(body for _, body in found.pop("é2")) == long_text(2)
    assert found.pop("") == [*before[""], ("No id", "Old café.")]
    assert all(found[name] == before[name] for name in found)
    assert removed.passages == len(PassageStore.open(store.path).live_ids())


def test_the_same_change_a_second_time_changes_nothing(store, add):
    given = [("new", "N", long_text(1)), ("é2", "T", "Now short."), ("", "No id", "Old café.")]
    first = add(*given)
    again = add(*given)
    assert (again.generation, again.added, again.replaced) == (first.generation, 0, 0)
    removed = remove_documents(store.path, ["new"])
    assert remove_documents(store.path, ["new"]).generation == removed.generation
    with pytest.raises(InputError, match="no document with this id"):
        remove_documents(store.path, ["new", "unheard"])


def test_a_second_add_says_that_it_waits_for_the_first(store, add, caplog):
    caplog.set_level(logging.INFO)
    with ThreadPoolExecutor() as threads:
        with staging(store.path):
            second = threads.submit(add, ("new", "N", "Oslo is old."))
            until = time.monotonic() + 30
            while not caplog.messages and time.monotonic() < until:
                time.sleep(0.01)
            assert not second.done()
        assert second.result(timeout=60).added == 1
    waits = [line for line in caplog.messages if "waiting for another command" in line]
    assert len(waits) == 1 and str(store.path) in waits[0]


def test_only_changed_passages_of_a_replaced_document_are_written(store, add):
    sentences = [f"Berlin is near river {n} in flows." for n in range(40)]
    add(("long", "Long", " ".join(sentences)))
    generation = PassageStore.open(store.path).generation
    before = by_document(PassageStore.open(store.path))["long"]
    assert len(before) > 3
    add(("long", "Long", " ".join([*sentences[:-1], "Vienna is old and 1999 cities."])))
    grown = PassageStore.open(store.path)
    assert len(grown.changed_since(generation)) == 1
    assert by_document(grown)["long"][:-1] == before[:-1]


def test_compaction_deletes_removed_texts_and_keeps_ids_and_hashes(store, add):
    secret = "Żywiec under Danube 1848 logged near secretly."
    add(("secret", "S", secret), ("é2", "T", "Other words."), ("stay", "Stay", long_text(3)))
    gone = store.body(next(i for i in range(len(store)) if store.document_id(i) == "é2"))
    remove_documents(store.path, ["secret"])
    before = PassageStore.open(store.path)
    live = before.live_ids().tolist()
    kept = {i: (before.title(i), before.body(i), before.document_id(i)) for i in live}
    assert all(texts_on_disk(store.path, text.encode()) for text in (secret, gone))
    summary = compact(store.path)
    after = PassageStore.open(store.path)
    assert not any(texts_on_disk(store.path, text.encode()) for text in (secret, gone, "secret"))
    assert {i: (after.title(i), after.body(i), after.document_id(i)) for i in kept} == kept
    assert (summary.segments, summary.passages) == (1, len(kept))
    assert after.live_ids().tolist() == live
    assert len(after) == len(before)
    assert after.corpus_hash == before.corpus_hash
    assert after.lineage == (*before.lineage, before.corpus_hash)
    assert np.array_equal(after.changed_since(1), before.changed_since(1))
    assert after.lengths().tolist() == before.lengths().tolist()
    assert verify(store.path) == []
    with pytest.raises(InputError, match="no such generation"):
        PassageStore.open(store.path, generation=2)
    with pytest.raises(InputError, match="deleted by a compaction"):
        PassageStore.open(store.path, generation=1)
    add(("late", "L", "A late one."))
    assert by_document(PassageStore.open(store.path))["late"] == [("L", "A late one.")]
    assert compact(store.path).segments == 1
