"""Reads documents from TFDS datasets such as `wikipedia`; TensorFlow is not needed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.example_parser import ExampleParserNp

from realm_jax.corpus.documents import Document, is_listing
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import DamageError, InputError

_NAME = re.compile(r"[a-z]\w*(?:/[\w.-]+)?(?::\d+\.\d+\.\d+)?")  # NAME/CONFIG:VERSION
_WIKIPEDIA = "wikipedia/20190301.en"


def read_tfds(input: str | Path, skipped: Skipped) -> Iterator[Document]:
    """Reads the documents of a prepared dataset with text features `title` and `text` (or `body`).

    Supports ArrayRecord and TFRecord files; the published `wikipedia` datasets are TFRecords. In
    `wikipedia`, pages that only list other pages are skipped.

    Args:
      input: the folder of the prepared version, `DATA_DIR/NAME/CONFIG/VERSION`, or a name such as
        `wikipedia/20190301.en`, searched in `TFDS_DATA_DIR` or `~/tensorflow_datasets`. All splits
        are read, sorted by name.
      skipped: counts skipped documents by reason.

    Raises:
      InputError: there is no prepared dataset, or it has other features or another file format.
      DamageError: a file is cut short.
    """
    builder = _builder(input)
    info = builder.info
    features = set(info.features or ())
    text = "text" if "text" in features else "body"
    if not {"title", text} <= features:
        raise InputError(
            "dataset has no documents",
            where=builder.data_dir,
            expected="text features 'title' and 'text' (or 'body')",
            found=", ".join(sorted(features)),
        )
    id_feature = [name for name in ("document_id", "id") if name in features][:1]
    for split in sorted(info.splits):
        for i, example in enumerate(_examples(builder, split)):
            title, body = (_decoded(example[name]) for name in ("title", text))
            where = f"{builder.data_dir}:{split}:{i}"
            if info.name != "wikipedia" or not is_listing(title, where, skipped):
                document_id = "".join(_decoded(example[name]) for name in id_feature)
                yield Document(title, body, where, document_id)


def _builder(input: str | Path) -> tfds.core.DatasetBuilder:
    folder = Path(input)
    if not folder.exists() and _NAME.fullmatch(str(input)):
        folder = _prepared(str(input))
    if not (folder / "dataset_info.json").is_file():
        raise InputError(
            "no prepared TFDS dataset",
            where=f"--input {input}",
            expected="a folder with dataset_info.json (DATA_DIR/NAME/CONFIG/VERSION), or a name "
            f"such as {_WIKIPEDIA} of one in TFDS_DATA_DIR",
            found="a folder without it" if folder.is_dir() else f"no folder {folder}",
            fix=f"gsutil -m cp -r gs://tfds-data/datasets/{_WIKIPEDIA} TFDS_DATA_DIR/wikipedia/",
        )
    return tfds.builder_from_directory(folder)


def _prepared(name: str) -> Path:
    """The folder of the named version; of the newest one if none is named."""
    name, _, version = name.partition(":")
    folder = Path(tfds.core.constants.DATA_DIR) / name
    versions = sorted(tfds.core.utils.version.list_all_versions(folder))
    return folder / (version or str(versions[-1]) if version or versions else "VERSION")


def _examples(builder: tfds.core.DatasetBuilder, split: str) -> Iterator[Any]:
    form = builder.info.file_format
    if form == tfds.core.FileFormat.ARRAY_RECORD:
        yield from builder.as_data_source(split)
    elif form == tfds.core.FileFormat.TFRECORD:
        features = builder.info.features
        parser = ExampleParserNp(features.get_serialized_info())
        for path in builder.info.splits[split].filepaths:
            for record in tfrecords(Path(path)):
                yield features.decode_example_np(parser.parse_example(record))
    else:
        raise InputError(
            "dataset has an unsupported file format",
            where=builder.data_dir,
            expected="array_record or tfrecord",
            found=form.value,
        )


def tfrecords(path: Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file.

    A record is its length, a checksum, the bytes and a checksum. The checksums are not verified:
    they are masked CRC32C, which is not in Python's standard library.

    Raises:
      DamageError: the file ends within a record.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while header := file.read(12):
            length = int.from_bytes(header[:8], "little")
            end = file.tell() + length + 4
            if len(header) < 12 or end > size:
                raise DamageError(
                    "TFRecord file is damaged or cut short",
                    where=path,
                    expected=f"a record up to byte {end}",
                    found=f"{size} bytes",
                    fix="download the file again",
                )
            yield file.read(length)
            file.seek(4, 1)


def _decoded(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
