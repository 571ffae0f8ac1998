"""Building a corpus from files gives the same store for any number of workers; its statistics."""

import json
import subprocess
import sys

import numpy as np
import pytest

from realm_jax.corpus import worker_pool
from realm_jax.corpus.build import build
from realm_jax.corpus.inspect import inspect
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError


@pytest.fixture
def files(tmp_path, documents):
    (tmp_path / "in").mkdir()
    for part in range(3):
        lines = [json.dumps({"title": d.title, "text": d.body}) for d in documents[part::3]]
        (tmp_path / "in" / f"{part}.jsonl").write_text("\n".join(lines))
    return tmp_path / "in"


def test_one_and_two_workers_give_the_same_store(files, tmp_path, vocabulary, monkeypatch):
    monkeypatch.setattr(worker_pool, "BATCH_CHARACTERS", 3000)  # several batches at the same time
    seen = []
    one = build("jsonl", str(files), tmp_path / "one", vocabulary, passage_pieces=64)
    two = build(
        "jsonl",
        str(files),
        tmp_path / "two",
        vocabulary,
        passage_pieces=64,
        workers=2,
        progress=lambda documents, passages: seen.append((documents, passages)),
    )
    assert one["corpus_hash"] == two["corpus_hash"]
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] == (one["documents"], one["passages"]) == (30, one["passages"])
    assert two["peak_memory_bytes"] > one["peak_memory_bytes"] > 1_000_000
    assert two["passages_per_second"] > 0


def test_batches_do_not_depend_on_files(documents, monkeypatch):
    monkeypatch.setattr(worker_pool, "BATCH_CHARACTERS", 3000)
    batches = list(worker_pool.batches(iter(documents)))
    assert [d for batch in batches for d in batch] == documents
    assert all(sum(len(d.body) for d in batch[:-1]) < 3000 for batch in batches)


def test_input_error_with_several_workers_reaches_the_caller(tmp_path, vocabulary):
    (tmp_path / "a.jsonl").write_text('{"title": "A", "text": "The river."}\nnot json\n')
    with pytest.raises(InputError, match=r"a\.jsonl:2"):
        build("jsonl", str(tmp_path / "a.jsonl"), tmp_path / "s", vocabulary, workers=2)
    with pytest.raises(InputError, match="unfinished"):
        PassageStore.open(tmp_path / "s")


def test_skipped_documents_are_counted_in_summary_and_manifest(tmp_path, vocabulary):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("The river.")
    (tmp_path / "in" / "b.txt").write_text("  ")
    (tmp_path / "in" / "c.txt").write_text("\u200b\u200b.\u200b"[:2])
    summary = build("text", str(tmp_path / "in"), tmp_path / "s", vocabulary)
    assert summary["skipped"] == {"empty_body": 2}
    names = [str(tmp_path / "in" / name) for name in ("b.txt", "c.txt")]
    assert summary["skipped_names"] == {"empty_body": names}
    manifest = PassageStore.open(tmp_path / "s").manifest
    assert (manifest["skipped"], manifest["skipped_names"]) == (
        {"empty_body": 2},
        {"empty_body": names},
    )


def test_inspect_computes_the_statistics_of_a_corpus(files, tmp_path, vocabulary):
    first = (files / "0.jsonl").read_text().split("\n")[0]
    (files / "3.jsonl").write_text(first)  # a duplicate of one document
    build("jsonl", str(files), tmp_path / "s", vocabulary, passage_pieces=64)
    store = PassageStore.open(tmp_path / "s")
    lengths = {"query": 20, "passage": 64, "joint": 80}
    statistics = inspect(store, lengths, seed=3)
    copies = sum(1 for i in range(len(store)) if store.document(i) == 30)
    assert statistics["duplicates"] == copies > 0
    assert sum(statistics["lengths"].values()) == statistics["passages"] == len(store)
    kept = sum(min(int(n), 64) for n in store.lengths())
    padding = statistics["padding"]
    assert padding["passage"] == {"length": 64, "share": pytest.approx(1 - kept / 64 / len(store))}
    bounds = [store.sentences(i) for i in range(len(store))]
    sentences = [int(n) + 2 for b in bounds for n in np.diff(b)]
    assert statistics["sentences"] == len(sentences)
    kept = sum(min(n, 20) for n in sentences)
    assert padding["query"]["share"] == pytest.approx(1 - kept / 20 / len(sentences))
    joint = [min(min(n, 20) + int(b[-1]) + 1, 80) for n in sentences for b in bounds]
    assert padding["joint"]["share"] == pytest.approx(1 - np.mean(joint) / 80, abs=0.01)
    assert statistics["oversize"] == (store.lengths() > 64).sum()
    assert len(statistics["longest_titles"]) == 10
    assert statistics["sample"] == inspect(store, lengths, seed=3)["sample"]
    assert statistics["sample"]["body"] == store.body(statistics["sample"]["passage"])


def test_corpus_and_text_never_import_jax():
    program = (
        "import importlib, pkgutil, sys, realm_jax.corpus as c, realm_jax.text as t\n"
        "for p in (c, t):\n"
        "  for m in pkgutil.iter_modules(p.__path__, p.__name__ + '.'):\n"
        "    importlib.import_module(m.name)\n"
        "print([m for m in ('jax', 'tensorflow', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
