"""`realm corpus add`, `remove` and `compact`: fields, dry runs and error messages."""

import io
import json
import sys

import pytest

from realm_jax.corpus.documents import Document
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store

FIELDS = {"generation", "added", "replaced", "removed", "passages", "segments"}


@pytest.fixture
def corpus(tmp_path, vocabulary):
    documents = [Document(f"T{n}", f"Text number {n}.", "", f"d{n}") for n in range(4)]
    write_store(tmp_path / "corpus", documents, vocabulary)
    return tmp_path / "corpus"


@pytest.fixture
def news(tmp_path):
    lines = [{"_id": "d1", "title": "T1", "text": "Other text."}, {"_id": "new", "text": "News."}]
    path = tmp_path / "news.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_documents_are_added_removed_and_compacted(realm, corpus, news, tmp_path):
    add = ["corpus", "add", f"--to={corpus}", "--format=jsonl", f"--input={news}", "--json"]
    tried = realm(*add, "--dry-run").json()
    assert (tried["documents_tried"], tried["passages"]) == (2, 4)
    assert PassageStore.open(corpus).generation == 1
    added = realm(*add).json()
    assert added.keys() >= FIELDS
    assert [added[name] for name in ("added", "replaced", "passages", "segments")] == [1, 1, 5, 2]
    assert realm(*add).json()["generation"] == added["generation"]
    (tmp_path / "ids").write_text("d2\nnew\n")
    remove = ["corpus", "remove", f"--from={corpus}", f"--ids-file={tmp_path / 'ids'}", "--json"]
    assert realm(*remove, "--dry-run").json() == {"dry_run": True, "removed": 2, "passages": 3}
    removed = realm(*remove).json()
    assert (removed["removed"], removed["passages"]) == (2, 3)
    assert realm("corpus", "compact", corpus, "--dry-run", "--json").json()["segments"] == 3
    compacted = realm("corpus", "compact", corpus, "--json").json()
    assert {name: compacted[name] for name in ("passages", "segments")} == {
        "passages": 3,
        "segments": 1,
    }
    assert realm("check", corpus).code == 0
    shown = realm("corpus", "inspect", corpus, "--json").json()
    assert (shown["passages"], shown["generation"]) == (3, compacted["generation"])


def test_ids_in_other_encodings_are_refused_and_a_byte_order_mark_is_left_out(
    realm, corpus, tmp_path, monkeypatch
):
    remove = ["corpus", "remove", f"--from={corpus}"]
    realm(*remove, "--ids=caf\udce9").refused("expected UTF-8", code=2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8"))
    realm(*remove, "--ids-file=-").refused("file of ids", "standard input")
    (tmp_path / "ids").write_text("d2\n", encoding="utf-8-sig")
    assert realm(*remove, f"--ids-file={tmp_path / 'ids'}", "--json").json()["removed"] == 1


def test_ids_of_a_repeated_flag_are_all_removed(realm, corpus):
    remove = ["corpus", "remove", f"--from={corpus}", "--ids=d1", "--ids=d0,d2", "--json"]
    assert realm(*remove).json()["removed"] == 3


def test_wrong_changes_are_refused(realm, corpus, news, tmp_path):
    realm("corpus", "remove", f"--from={corpus}", "--ids=d1,nope").refused("no document", "nope")
    realm("corpus", "remove", f"--from={corpus}", "--ids=d0,d1,d2,d3").refused("at least one")
    missing = f"--ids-file={tmp_path / 'none'}"
    realm("corpus", "remove", f"--from={corpus}", missing).refused("file of ids")
    add = ["corpus", "add", "--format=jsonl", f"--input={news}"]
    realm(*add, f"--to={tmp_path / 'nowhere'}").refused("no corpus in this folder", "nowhere")
    realm(*add[:-1], f"--input={tmp_path / 'none'}", f"--to={corpus}").refused("no input file")
    assert not (tmp_path / "nowhere").exists()
    assert PassageStore.open(corpus).generation == 1
