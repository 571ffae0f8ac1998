"""Stores are converted to TFDS datasets and back, without TensorFlow."""

import sys

import pytest
import tensorflow_datasets as tfds

from realm_jax.corpus.document_ids import IDS, STARTS
from realm_jax.corpus.readers import read
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import ARRAYS
from realm_jax.corpus.tally import Skipped
from realm_jax.corpus.tfds_builder import build_tfds, store_from_tfds
from realm_jax.errors import InputError, MismatchError
from realm_jax.text.vocabulary import write_vocabulary


def test_store_is_identical_after_tfds_and_back(store, tmp_path, vocabulary, words, monkeypatch):
    monkeypatch.setattr("realm_jax.corpus.tfds_builder._BATCH", 7)
    folder = build_tfds(store, tmp_path / "tfds")
    source = tfds.builder_from_directory(folder).as_data_source("train")
    assert len(source) == len(store)
    for i in (0, 7, len(store) - 1):
        example = source[i]
        assert (example["id"], example["document"]) == (i, store.document(i))
        assert example["title"].decode() == store.title(i)
        assert example["body"].decode() == store.body(i)
        assert example["title_ids"].tolist() == store.title_ids(i).tolist()
        assert example["body_ids"].tolist() == store.body_ids(i).tolist()
        titles = len(store.title_ids(i))
        assert example["offsets"][titles:].tolist() == store.body_offsets(i).tolist()
        assert example["sentence_starts"].tolist() == store.sentences(i)[:-1].tolist()
    documents = list(read("tfds", str(folder), Skipped()))
    assert [(d.title, d.body, d.id) for d in documents] == [
        (store.title(i), store.body(i), store.document_id(i)) for i in range(len(store))
    ]
    again = store_from_tfds(folder, tmp_path / "again", vocabulary)
    assert again["corpus_hash"] == store.corpus_hash
    assert again["documents"] == store.manifest["documents"]
    for name in (*ARRAYS, IDS, STARTS):
        assert (tmp_path / "again" / name).read_bytes() == (store.path / name).read_bytes()
    assert PassageStore.open(tmp_path / "again").verify() == []
    write_vocabulary(tmp_path / "other.txt", words.vocabulary[:-1])
    with pytest.raises(MismatchError, match="another vocabulary"):
        store_from_tfds(folder, tmp_path / "other", tmp_path / "other.txt")
    assert "tensorflow" not in sys.modules
    with pytest.raises(InputError, match="already exists"):
        build_tfds(store, tmp_path / "tfds")
