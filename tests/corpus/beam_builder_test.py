"""Beam (direct runner) gives the same store as `realm corpus build`, byte for byte."""

import json

import pytest
import tensorflow_datasets as tfds

beam = pytest.importorskip("apache_beam", reason="needs the extra [beam]: pip install -e '.[beam]'")

from realm_jax.corpus.beam_builder import BeamPassages, build_with_beam  # noqa: E402
from realm_jax.corpus.build import build  # noqa: E402
from realm_jax.corpus.tfds_builder import prepare, store_from_tfds  # noqa: E402
from realm_jax.errors import InputError  # noqa: E402

COUNTED = ("documents", "passages", "pieces", "skipped", "corpus_hash")


@pytest.fixture
def input(tmp_path, documents):
    """Files of different sizes, one of them without passages."""
    folder = tmp_path / "in"
    folder.mkdir()
    parts = [documents[:3], [], documents[3:20], documents[20:]]
    for number, part in enumerate(parts):
        lines = [json.dumps({"title": d.title, "text": d.body}) for d in part]
        blank = '{"title": "Blank", "text": " "}'
        (folder / f"{number}.jsonl").write_text("\n".join([blank, *lines]))
    (folder / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    return folder


def test_beam_gives_the_same_store_as_corpus_build(input, tmp_path, vocabulary):
    whole = build("jsonl", str(input), tmp_path / "a", vocabulary, passage_pieces=64)
    folder = build_with_beam("jsonl", str(input), tmp_path / "t", vocabulary, passage_pieces=64)
    by_beam = store_from_tfds(folder, tmp_path / "b", vocabulary, 64)
    assert {k: whole[k] for k in COUNTED} == {k: by_beam[k] for k in COUNTED}
    assert whole["skipped"] == {"empty_body": 4, "not_text": 1}
    with pytest.raises(InputError, match="already exists"):
        build_with_beam("jsonl", str(input), tmp_path / "t", vocabulary, passage_pieces=64)


def test_store_does_not_depend_on_beam_workers_or_dataset_files(input, tmp_path, vocabulary):
    whole = build("jsonl", str(input), tmp_path / "a", vocabulary, passage_pieces=64)
    builder = BeamPassages(
        format="jsonl",
        paths=sorted(input.iterdir()),
        how={},
        vocabulary_file=str(vocabulary),
        pieces=64,
        data_dir=str(tmp_path / "t"),
        file_format="array_record",
    )
    options = beam.options.pipeline_options.PipelineOptions(["--direct_num_workers=2"])
    config = tfds.download.DownloadConfig(num_shards=5, beam_options=options)
    folder = prepare(builder, download_config=config)
    assert len(list(folder.glob("*-of-00005"))) == 5
    assert (
        store_from_tfds(folder, tmp_path / "b", vocabulary)["corpus_hash"] == whole["corpus_hash"]
    )


def test_malformed_line_is_named_in_the_error(input, tmp_path, vocabulary):
    (input / "5.jsonl").write_text('{"title": "A", "text": "b"}\nprose\n')
    with pytest.raises(Exception, match=r"5\.jsonl:2"):
        build_with_beam("jsonl", str(input), tmp_path / "t", vocabulary)


def test_beam_refuses_tfds_input(tmp_path, vocabulary):
    with pytest.raises(InputError, match="Beam reads files only"):
        build_with_beam("tfds", "wikipedia/20190301.en", tmp_path / "t", vocabulary)
