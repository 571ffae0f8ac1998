"""Documents keep the ids of their source; a corpus of an earlier version has none."""

import json
import shutil

import pytest

from realm_jax.corpus.document_ids import IDS, STARTS
from realm_jax.corpus.documents import Document
from realm_jax.corpus.readers import read
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store
from realm_jax.corpus.tally import Skipped
from realm_jax.storage.layout import MANIFEST
from realm_jax.storage.sealed import seal


def write(folder, ids, vocabulary):
    text = "The river joins the Danube. " * 30  # several passages
    documents = [Document("", f"{text} Number {i}.", "x", id) for i, id in enumerate(ids)]
    summary = write_store(folder, documents, vocabulary, passage_pieces=64)
    return PassageStore.open(folder), summary


def test_all_passages_of_a_document_have_its_id(tmp_path, vocabulary):
    ids = ["12", "", "MED-7", "é/ü 日本", "12", "12", "x" * 70_000]
    store, summary = write(tmp_path / "s", ids, vocabulary)
    assert len(store) > 2 * len(ids)
    assert [store.document_id(i) for i in range(len(store))] == [
        ids[store.document(i)] for i in range(len(store))
    ]
    assert list(store.document_ids) == ids
    assert (summary["documents_with_id"], summary["repeated_ids"]) == (6, 2)
    assert store.verify() == []
    with pytest.raises(IndexError):
        store.document_ids[len(ids)]


def test_ids_do_not_change_the_corpus_hash(tmp_path, vocabulary):
    with_ids, without = (
        write(tmp_path / name, ids, vocabulary)[1]["corpus_hash"]
        for name, ids in (("a", ["1", "2"]), ("b", ["", ""]))
    )
    assert with_ids == without


def test_a_corpus_of_an_earlier_version_has_no_ids_and_stays_readable(tmp_path, vocabulary):
    store, _ = write(tmp_path / "new", ["1", "2"], vocabulary)
    shutil.copytree(store.path, tmp_path / "old")
    for name in (IDS, STARTS):
        (tmp_path / "old" / name).unlink()
    manifest = json.loads((tmp_path / "old" / MANIFEST).read_text())
    for name in (IDS, STARTS):
        del manifest["files"][name]
    del manifest["documents_with_id"], manifest["repeated_ids"], manifest["checksum"]
    (tmp_path / "old" / MANIFEST).write_bytes(seal(manifest))
    old = PassageStore.open(tmp_path / "old")
    assert old.corpus_hash == store.corpus_hash
    assert [old.document_id(i) for i in range(len(old))] == [""] * len(store)
    assert list(old.document_ids) == ["", ""]
    assert old.summary()["documents"] == 2
    assert old.verify() == []


@pytest.mark.parametrize(
    ("format", "content", "id"),
    [
        ("jsonl", '{"_id": "MED-1", "id": "other", "text": "b"}', "MED-1"),
        ("jsonl", '{"id": 7, "title": null, "text": "b"}', "7"),
        ("jsonl", '{"id": null, "title": "A", "text": "b"}', ""),
        ("cc_news", '{"id": "n1", "maintext": "b"}', "n1"),
        ("wikiextractor", '<doc id="12" url="u" title="A">\nb\n</doc>\n', "12"),
        ("wikiextractor", '{"id": "12", "url": "u", "title": "A", "text": "b"}', "12"),
        (
            "reuters",
            '<REUTERS OLDID="5" NEWID="3">\n<TITLE>A</TITLE><BODY>b</BODY>\n</REUTERS>\n',
            "3",
        ),
        ("text", "b", "file"),
    ],
)
def test_every_format_with_ids_keeps_them(tmp_path, monkeypatch, format, content, id):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text(content)
    assert [d.id for d in read(format, "file", Skipped())] == [id]
