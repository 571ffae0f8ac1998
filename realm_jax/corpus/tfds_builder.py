"""Converts a corpus to a TFDS dataset of passages and back; TensorFlow is not needed."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from realm_jax.corpus.split import Block
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import StoreWriter
from realm_jax.corpus.tally import Skipped, Tally
from realm_jax.errors import InputError, MismatchError
from realm_jax.text.wordpiece import WordPieces

Example = dict[str, Any]
SKIPPED = "skipped.json"  # what a Beam pipeline did not read, in the parent of the dataset
_BATCH = 1024  # passages converted at a time


class PassagesInfo(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """The features of every dataset of passages: all fields of the corpus, with the row as `id`."""

    name = "realm_passages"
    VERSION = tfds.core.Version("2.1.0")
    RELEASE_NOTES = {  # noqa: RUF012
        "2.0.0": "All that a passage store keeps of every passage.",
        "2.1.0": "Also the id of the document as its source gives it.",
    }

    def __init__(self, *, vocabulary: str, **options: Any):
        self._vocabulary = vocabulary  # sha256
        super().__init__(**options)

    def _info(self) -> tfds.core.DatasetInfo:
        text, tensor = tfds.features.Text, tfds.features.Tensor
        features = {
            "id": np.int64,
            "document": np.int64,
            "document_id": text(),
            "title": text(),
            "body": text(),
            "title_ids": tensor(shape=(None,), dtype=np.int32),
            "body_ids": tensor(shape=(None,), dtype=np.int32),
            "offsets": tensor(shape=(None, 2), dtype=np.int32),
            "sentence_starts": tensor(shape=(None,), dtype=np.int32),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description="Passages cut for REALM, in the order of their numbers.",
            features=tfds.features.FeaturesDict(features),
            metadata=tfds.core.MetadataDict(vocabulary=self._vocabulary),
            disable_shuffling=True,  # the row is the passage id
        )


class StorePassages(PassagesInfo, skip_registration=True):  # type: ignore[call-arg]
    """A dataset with the passages of one store."""

    name = PassagesInfo.name

    def __init__(self, *, store: PassageStore, **options: Any):
        self._store = store
        super().__init__(vocabulary=store.vocabulary.sha256, **options)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, Example]]:
        for first in range(0, len(self._store), _BATCH):
            block = self._store.block(first, min(first + _BATCH, len(self._store)))
            yield from ((e["id"], e) for e in examples_of(block, first, 0))


def build_tfds(store: PassageStore, data_dir: str | Path) -> Path:
    """Prepares the dataset `realm_passages` in `data_dir` from a store, as ArrayRecord files.

    Load it with `tfds.builder_from_directory(folder).as_data_source("train")`.

    Returns:
      The folder of the prepared version.

    Raises:
      InputError: the dataset already exists.
    """
    return prepare(StorePassages(store=store, data_dir=str(data_dir), file_format="array_record"))


def prepare(builder: PassagesInfo, **options: Any) -> Path:
    """Writes a new dataset; returns its folder."""
    folder = Path(builder.data_dir)
    if folder.exists():
        raise InputError("the dataset already exists", where=folder, fix="give another data_dir")
    builder.download_and_prepare(**options)
    return folder


def examples_of(block: Block, first: int, document: int) -> Iterator[Example]:
    """Yields the passages of a block as examples of the dataset.

    Args:
      block: the passages.
      first: `id` of the first passage.
      document: number of the first document.
    """
    piece, sentence, byte = (
        np.concatenate([[0], np.cumsum(counts)]).tolist()
        for counts in (block.piece_counts, block.sentence_counts, block.text_bytes)
    )
    for i, titles in enumerate(block.title_pieces.tolist()):
        text = byte[i] + int(block.title_bytes[i])
        yield {
            "id": first + i,
            "document": document + int(block.document[i]),
            "document_id": block.document_ids[i],
            "title": block.text[byte[i] : text].decode(),
            "body": block.text[text : byte[i + 1]].decode(),
            "title_ids": block.pieces[piece[i] : piece[i] + titles].astype(np.int32),
            "body_ids": block.pieces[piece[i] + titles : piece[i + 1]].astype(np.int32),
            "offsets": block.offsets[piece[i] : piece[i + 1]],
            "sentence_starts": block.sentence_starts[sentence[i] : sentence[i + 1]],
        }


def store_from_tfds(
    folder: str | Path,
    out: str | Path,
    vocabulary: str | Path,
    passage_pieces: int = 0,
    skipped: Skipped | None = None,
) -> dict[str, Any]:
    """Writes a corpus from a `realm_passages` dataset, identical to that of `realm corpus build`.

    Args:
      folder: the prepared version, `DATA_DIR/realm_passages/VERSION`.
      out: folder of the corpus.
      vocabulary: the vocabulary with which the passages were split.
      passage_pieces: the maximum word pieces of a passage with which they were split.
      skipped: files that were left out before.

    Returns:
      See `StoreWriter.commit`.

    Raises:
      MismatchError: the passages were split with another vocabulary.
      InputError: see `StoreWriter`.
    """
    builder = tfds.builder_from_directory(folder)
    expected = WordPieces.load(vocabulary).sha256
    if builder.info.metadata["vocabulary"] != expected:
        raise MismatchError(
            "passages were split with another vocabulary",
            where=folder,
            expected=f"{expected} ({vocabulary})",
            found=builder.info.metadata["vocabulary"],
        )
    source = builder.as_data_source("train")
    writer = StoreWriter(out, vocabulary, passage_pieces)
    try:
        for first in range(0, len(source), _BATCH):
            rows = range(first, min(first + _BATCH, len(source)))
            writer.append(_block_of(source.__getitems__(rows), writer.documents))
        skipped = Skipped() if skipped is None else skipped
        file = Path(folder).parent / SKIPPED
        if file.exists():
            tallies = (skipped, writer.remarks, skipped.decoded)
            for tally, more in zip(tallies, json.loads(file.read_text()), strict=True):
                tally.merge(Tally.from_json(more))
        return writer.commit(skipped)
    finally:
        writer.close()


def _block_of(examples: Iterable[Example], document: int) -> Block:
    rows = list(examples)
    titles, bodies = ([row[name] for row in rows] for name in ("title", "body"))
    numbers = np.array([row["document"] for row in rows], np.int64) - document
    title_pieces = np.array([len(row["title_ids"]) for row in rows], np.int32)
    return Block(
        pieces=np.concatenate([row[n] for row in rows for n in ("title_ids", "body_ids")]),
        offsets=np.concatenate([row["offsets"] for row in rows]),
        piece_counts=title_pieces + np.array([len(row["body_ids"]) for row in rows], np.int64),
        title_pieces=title_pieces,
        sentence_starts=np.concatenate([row["sentence_starts"] for row in rows]),
        sentence_counts=np.array([len(row["sentence_starts"]) for row in rows], np.int64),
        text=b"".join(text for pair in zip(titles, bodies, strict=True) for text in pair),
        text_bytes=np.array([len(t) + len(b) for t, b in zip(titles, bodies, strict=True)]),
        title_bytes=np.array([len(title) for title in titles], np.int32),
        document=numbers,
        # Version 2.0.0 of the dataset has no ids.
        document_ids=[row.get("document_id", b"").decode() for row in rows],
        documents=int(numbers[-1]) + 1,
        remarks=Tally(),
    )
