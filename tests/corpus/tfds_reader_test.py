"""A dataset with the features of TFDS Wikipedia is read from ArrayRecord and TFRecord files."""

import json
import zlib

import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader
from support.tfds_wikipedia import Wikipedia

from realm_jax.corpus.readers import read
from realm_jax.corpus.tally import Skipped
from realm_jax.corpus.tfds_reader import tfrecords
from realm_jax.errors import DamageError, InputError

PAGES = [
    ("Rome", "Rome is old.\n\nIt was founded early."),
    ("Żywiec", "Żywiec lies in Poland. 日本 does not."),
    ("List of cities", "Rome\nOslo"),
    ("Rome (disambiguation)", "Rome may mean"),
    ("Blank", "  "),
]
KEPT = [(f"{title} {n}", text) for n in range(20) for title, text in PAGES[:2]]
SKIPPED = {"list_page": 20, "disambiguation_page": 20, "empty_body": 20}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    pages = [(f"{title} {n}", text) for n in range(20) for title, text in PAGES]
    builder = Wikipedia(pages, data_dir=str(folder), file_format="array_record")
    config = tfds.download.DownloadConfig(num_shards=3)
    builder.download_and_prepare(download_config=config)
    as_tfrecord(folder / "wikipedia/20190301.en/1.0.0", folder / "tfrecord/1.0.0")
    return folder


def as_tfrecord(folder, out):
    """Writes the same dataset as TFRecord files, with zeros as checksums."""
    out.mkdir(parents=True)
    for path in folder.glob("*.json"):
        (out / path.name).write_text(path.read_text().replace("array_record", "tfrecord"))
    for path in folder.glob("*.array_record-*"):
        reader = ArrayRecordReader(str(path))
        with (out / path.name.replace("array_record", "tfrecord")).open("wb") as file:
            for record in reader.read_all() if reader.num_records() else ():
                file.write(len(record).to_bytes(8, "little") + bytes(4) + record + bytes(4))
        reader.close()


def run(input):
    skipped = Skipped()
    return [(d.title, d.body) for d in read("tfds", str(input), skipped)], dict(skipped)


@pytest.mark.parametrize("form", ["wikipedia/20190301.en", "tfrecord"])
def test_pages_are_read_in_order_and_list_pages_skipped(data_dir, form):
    assert len(list((data_dir / form / "1.0.0").glob("*-of-00003"))) == 3
    assert run(data_dir / form / "1.0.0") == (KEPT, SKIPPED)


@pytest.mark.parametrize("name", ["wikipedia/20190301.en", "wikipedia/20190301.en:1.0.0"])
def test_dataset_is_found_by_name(data_dir, monkeypatch, name):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(data_dir))
    assert run(name) == (KEPT, SKIPPED)


@pytest.mark.parametrize("name", ["wikipedia/20190301.en", "wikipedia/20190301.en:9.0.0", "none"])
def test_missing_dataset_is_refused_with_the_download_command(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match="no prepared TFDS dataset") as error:
        run(name)
    assert str(tmp_path) in str(error.value)
    assert "gsutil" in str(error.value)


def test_folder_without_dataset_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"dataset_info\.json"):
        run(tmp_path)


@pytest.mark.parametrize("left", [-1, 5, 40])
def test_truncated_tfrecord_file_is_named_in_the_error(data_dir, tmp_path, left):
    whole = next((data_dir / "tfrecord/1.0.0").glob("*-00000-of-00003"))
    path = tmp_path / "cut"
    path.write_bytes(whole.read_bytes()[:left])
    with pytest.raises(DamageError, match="cut short") as error:
        list(tfrecords(path))
    assert str(path) in str(error.value)


def test_dataset_without_documents_is_refused(data_dir, tmp_path):
    folder = data_dir / "wikipedia/20190301.en/1.0.0"
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    features = json.loads((folder / "features.json").read_text())
    inner = features["featuresDict"]["features"]
    inner["question"] = inner.pop("text")
    (tmp_path / "features.json").write_text(json.dumps(features))
    with pytest.raises(InputError, match="no documents") as error:
        run(tmp_path)
    assert "question" in str(error.value)


def test_tfrecord_files_written_by_beam_are_read(tmp_path, monkeypatch):
    tfrecordio = pytest.importorskip("apache_beam.io.tfrecordio", reason="needs the extra [beam]")
    monkeypatch.setattr(tfrecordio._default_crc32c_fn, "fn", zlib.crc32)
    records = [b"", b"one", b"x" * 1000]
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        for record in records:
            tfrecordio._TFRecordUtil.write_record(file, record)
    assert list(tfrecords(path)) == records
