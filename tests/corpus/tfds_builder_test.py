"""Stores as TFDS datasets and back, without TensorFlow."""

import sys
from collections import Counter

import pytest
import tensorflow_datasets as tfds

from realm_jax.corpus.readers import read
from realm_jax.corpus.tfds_builder import build_tfds
from realm_jax.errors import InputError


def test_a_store_goes_to_tfds_and_back(store, tmp_path):
    folder = build_tfds(store, tmp_path / "tfds")
    source = tfds.builder_from_directory(folder).as_data_source("train")
    assert len(source) == len(store)
    for i in (0, 7, len(store) - 1):
        example = source[i]
        assert example["id"] == i
        assert example["title"].decode() == store.title(i)
        assert example["body"].decode() == store.body(i)
        assert example["title_ids"].tolist() == store.title_ids(i).tolist()
        assert example["body_ids"].tolist() == store.body_ids(i).tolist()
    documents = list(read("tfds", str(folder), Counter()))
    assert [(d.title, d.body) for d in documents] == [
        (store.title(i), store.body(i)) for i in range(len(store))
    ]
    assert "tensorflow" not in sys.modules
    with pytest.raises(InputError, match="exists already"):
        build_tfds(store, tmp_path / "tfds")


def test_a_folder_without_dataset_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"dataset_info\.json"):
        list(read("tfds", str(tmp_path), Counter()))
