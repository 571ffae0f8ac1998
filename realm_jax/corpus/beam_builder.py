"""`realm corpus build --beam`: splits documents on a cluster with Apache Beam, as a TFDS dataset.

Needs the extra `[beam]`. The unit of work is one input file (an archive is one file), so use many.
All workers must be able to read the input and the vocabulary, and to write to data_dir.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from realm_jax.corpus.input_files import files
from realm_jax.corpus.readers import FILE_FORMATS, read
from realm_jax.corpus.split import PASSAGE_PIECES, split
from realm_jax.corpus.tally import Skipped, Tally
from realm_jax.corpus.tfds_builder import SKIPPED, Example, PassagesInfo, examples_of, prepare
from realm_jax.corpus.worker_pool import batches
from realm_jax.errors import InputError
from realm_jax.text.wordpiece import WordPieces

_COUNT = "count"
# (file number, passages, documents, what was skipped, remarks, encodings), the last three as JSON;
# file number -> (passages, documents) before it
Count = tuple[int, int, int, list[dict[str, Any]]]
Before = dict[int, tuple[int, int]]


class BeamPassages(PassagesInfo, skip_registration=True):  # type: ignore[call-arg]
    """Passages of raw files, split by a Beam pipeline, with the ids of `realm corpus build`."""

    name = PassagesInfo.name

    def __init__(
        self,
        *,
        format: str,
        paths: list[Path],
        vocabulary_file: str,
        pieces: int,
        how: dict[str, Any],
        **options: Any,
    ):
        self._how: dict[str, Any] = {
            "format": format,
            "vocabulary": vocabulary_file,
            "passage_pieces": pieces,
        }
        self._how["how"] = how
        self._paths = list(enumerate(map(str, paths)))
        super().__init__(vocabulary=WordPieces.load(vocabulary_file).sha256, **options)

    @property
    def skipped_file(self) -> Path:
        """File for the counts of skipped documents; in the parent, as TFDS renames the dataset."""
        return Path(self.data_dir).parent / SKIPPED

    def _split_generators(self, dl_manager: Any, pipeline: Any) -> dict[str, Any]:
        return {"train": self._generate_examples(pipeline)}

    def _generate_examples(self, pipeline: Any) -> Any:
        import apache_beam as beam

        found = (
            pipeline
            | "Files" >> beam.Create(self._paths)
            | "Spread" >> beam.Reshuffle()
            | "Cut" >> beam.ParDo(_cut, **self._how).with_outputs(_COUNT, main="passages")
        )
        counts = found[_COUNT] | beam.combiners.ToList()
        _ = counts | "Skipped" >> beam.Map(_write_skipped, path=self.skipped_file)
        before = counts | "Before" >> beam.Map(_before)
        return found["passages"] | "Number" >> beam.Map(
            _numbered, before=beam.pvalue.AsSingleton(before)
        )


def _cut(
    file: tuple[int, str], format: str, vocabulary: str, passage_pieces: int, how: dict[str, Any]
) -> Iterator[Any]:
    """Yields (file number, example), with ids that start at 0 in each file; reads in batches."""
    from apache_beam.pvalue import TaggedOutput

    number, path = file
    tokenizer = _load_tokenizer(vocabulary)
    skipped, remarks = Skipped(), Tally()
    passages = documents = 0
    # One of many files: a picture among them is left out, as by `realm corpus build`.
    for documents_batch in batches(read(format, path, skipped, required=False, **how)):
        block = split(documents_batch, tokenizer, passage_pieces)
        for example in examples_of(block, passages, documents):
            yield number, example
        passages, documents = passages + len(block.piece_counts), documents + block.documents
        remarks.merge(block.remarks)
    tallies = [tally.to_json() for tally in (skipped, remarks, skipped.decoded)]
    yield TaggedOutput(_COUNT, (number, passages, documents, tallies))


def _before(counts: list[Count]) -> Before:
    before, passages, documents = {}, 0, 0
    for number, more_passages, more_documents, _ in sorted(counts, key=itemgetter(0)):
        before[number] = passages, documents
        passages, documents = passages + more_passages, documents + more_documents
    return before


def _write_skipped(counts: list[Count], path: Path) -> None:
    sums = [Tally(), Tally(), Tally()]
    for *_, tallies in sorted(counts, key=itemgetter(0)):
        for total, one in zip(sums, tallies, strict=True):
            total.merge(Tally.from_json(one))
    path.write_text(json.dumps([total.to_json() for total in sums]))


def _numbered(found: tuple[int, Example], before: Before) -> tuple[int, Example]:
    number, example = found
    passages, documents = before[number]
    ids = {"id": example["id"] + passages, "document": example["document"] + documents}
    return ids["id"], example | ids


@lru_cache(maxsize=1)
def _load_tokenizer(vocabulary: str) -> WordPieces:
    return WordPieces.load(vocabulary)


def build_with_beam(
    format: str,
    input: str,
    data_dir: str | Path,
    vocabulary: str | Path,
    *,
    passage_pieces: int = PASSAGE_PIECES,
    options: str = "",
    skipped: Skipped | None = None,
    **how: Any,
) -> Path:
    """Prepares `realm_passages` in `data_dir` from raw files; `store_from_tfds` converts it.

    The counts of skipped documents are written to `skipped.json` in the parent of the version
    folder.

    Args:
      format: see `readers.read`; `tfds` is not supported.
      input: see `readers.read`.
      data_dir: the folder of TFDS datasets.
      vocabulary: a BERT vocab.txt.
      passage_pieces: maximum word pieces of a passage, including [CLS] and [SEP].
      options: command-line options of the pipeline: "--runner=DataflowRunner --project=…".
      skipped: counts the files that are left out.
      how: `columns` and `encoding`, see `readers.read`.

    Returns:
      The folder of the prepared version.

    Raises:
      ModuleNotFoundError: Apache Beam is not installed.
      InputError: no file matches, a file is malformed, or the dataset already exists.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    if format == "tfds":
        raise InputError("Beam reads files only", where="format", expected="not tfds", found=format)
    builder = BeamPassages(
        format=format,
        paths=files(input, FILE_FORMATS[format].wanted(), skipped),
        how=how,
        vocabulary_file=str(vocabulary),
        pieces=passage_pieces,
        data_dir=str(data_dir),
        file_format="array_record",
    )
    beam_options = PipelineOptions(options.split())
    return prepare(builder, download_config=tfds.download.DownloadConfig(beam_options=beam_options))
