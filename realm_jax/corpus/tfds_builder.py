"""Passage stores as TFDS datasets, and TFDS datasets as documents; TensorFlow is not needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from realm_jax.corpus.documents import Document
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError


class RealmPassages(tfds.core.GeneratorBasedBuilder):
    """Passages of one store, in row order: `id`, `title`, `body`, `title_ids`, `body_ids`."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Title, body and word pieces of every passage."}  # noqa: RUF012

    def __init__(self, *, store: PassageStore, **options: Any):
        self._store = store
        super().__init__(**options)

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict(
            {
                "id": np.int64,
                "title": tfds.features.Text(),
                "body": tfds.features.Text(),
                "title_ids": tfds.features.Tensor(shape=(None,), dtype=np.int32),
                "body_ids": tfds.features.Tensor(shape=(None,), dtype=np.int32),
            }
        )
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"REALM passages, corpus {self._store.corpus_hash}",
            features=features,
            disable_shuffling=True,  # the row is the passage's id
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for i in range(len(self._store)):
            yield (
                i,
                {
                    "id": i,
                    "title": self._store.title(i),
                    "body": self._store.body(i),
                    "title_ids": self._store.title_ids(i),
                    "body_ids": self._store.body_ids(i),
                },
            )


def build_tfds(store: PassageStore, data_dir: str | Path) -> Path:
    """Prepares `realm_passages` in `data_dir` from a store, as ArrayRecord files.

    Load it with `tfds.builder_from_directory(folder).as_data_source("train")`.

    Returns:
      The folder of the prepared version.

    Raises:
      InputError: a dataset is there already.
    """
    builder = RealmPassages(store=store, data_dir=str(data_dir), file_format="array_record")
    folder = Path(builder.data_dir)
    if folder.exists():
        raise InputError("the dataset exists already", where=folder, fix="give another data_dir")
    builder.download_and_prepare()
    return folder


def read_tfds(folder: str | Path) -> Iterator[Document]:
    """Documents of a prepared dataset with the text features `title` and `text` (or `body`).

    Args:
      folder: the prepared version, `DATA_DIR/NAME/VERSION`; all its splits are read, by name.

    Raises:
      InputError: no prepared dataset there, files that need TensorFlow, or other features.
    """
    folder = Path(folder)
    if not (folder / "dataset_info.json").is_file():
        raise InputError(
            "no prepared TFDS dataset",
            where=f"--input {folder}",
            expected="a folder DATA_DIR/NAME/VERSION with dataset_info.json",
        )
    builder = tfds.builder_from_directory(folder)
    features = set(builder.info.features or ())
    text = "text" if "text" in features else "body"
    if not {"title", text} <= features:
        raise InputError(
            "dataset has no documents",
            where=folder,
            expected="text features 'title' and 'text' (or 'body')",
            found=", ".join(sorted(features)),
        )
    for split in sorted(builder.info.splits):
        for i, example in enumerate(builder.as_data_source(split)):
            yield Document(_text(example["title"]), _text(example[text]), f"{folder}:{split}:{i}")


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8")
