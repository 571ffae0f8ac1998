"""`realm corpus` with the corpus in the folder of its documents: it never reads its own files."""

import json

import pytest

from realm_jax.cli import exit_codes
from realm_jax.corpus import store_writer, worker_pool
from realm_jax.corpus.store import PassageStore


@pytest.mark.parametrize("format", ["text", "jsonl"])
def test_a_corpus_beside_its_documents_is_not_read(realm, tmp_path, monkeypatch, format):
    def write(name):
        text = f"{name} is a city. It has a river."
        content = text if format == "text" else json.dumps({"_id": name, "text": text})
        (tmp_path / f"{name}.{'txt' if format == 'text' else format}").write_text(content)

    write("Rome")
    write("Oslo")
    monkeypatch.chdir(tmp_path)
    given = [f"--format={format}", "--input=.", "--json"]
    built = realm("corpus", "build", "--out=corpus", *given)
    assert built.json()["documents"] == 2, built.err
    for _ in range(2):
        added = realm("corpus", "add", "--to=corpus", *given)
        assert (added.json()["generation"], added.json()["added"]) == (1, 0), added.err
    assert added.json()["skipped"] == {"corpus_folder": 1, "learned_vocabulary": 1}
    write("Lima")
    realm("corpus", "add", "--to=corpus", *given)
    realm("corpus", "compact", "corpus")
    added = realm("corpus", "add", "--to=corpus", *given)
    assert (added.json()["generation"], added.json()["added"]) == (3, 0), added.err
    assert added.json()["skipped"] == {"corpus_folder": 1, "learned_vocabulary": 1}
    tried = realm("corpus", "add", "--to=corpus", *given, "--dry-run").json()
    assert (tried["documents_tried"], tried["files"]) == (3, 3)


@pytest.mark.parametrize("learnt", [True, False])
def test_an_interrupted_build_beside_its_documents_resumes(
    realm, tmp_path, monkeypatch, vocabulary, learnt
):
    monkeypatch.setattr(store_writer, "SHARD_BATCHES", 1)
    monkeypatch.setattr(worker_pool, "BATCH_CHARACTERS", 100)
    for n in range(6):
        (tmp_path / f"{n}.txt").write_text(f"Town {n} is a city with a river. " * 5)
    monkeypatch.chdir(tmp_path)
    command = ["corpus", "build", "--format=text", "--input=.", "--out=corpus"]
    command += [] if learnt else [f"--vocab={vocabulary}"]
    finish_shard, shards = store_writer.StoreWriter.finish_shard, []

    def interrupted(self, **fields):
        finish_shard(self, **fields)
        shards.append(fields)
        if len(shards) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(store_writer.StoreWriter, "finish_shard", interrupted)
    assert realm(*command).code == exit_codes.STOPPED
    resumed = realm(*command)
    assert resumed.code == 0, resumed.err
    assert (len(shards), len(PassageStore.open("corpus"))) == (6, 6)
