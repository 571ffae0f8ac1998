"""Writes a corpus block by block; memory does not grow with the corpus."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.corpus.document_ids import IDS, STARTS, DocumentIds, DocumentIdsWriter
from realm_jax.corpus.documents import Document
from realm_jax.corpus.split import LEAST_PIECES, PASSAGE_PIECES, Block, block_of, split
from realm_jax.corpus.tally import Skipped, Tally
from realm_jax.corpus.worker_pool import batches, exit_if_imported_by_worker, in_order
from realm_jax.errors import InputError
from realm_jax.storage.appendable import FolderWriter
from realm_jax.text.wordpiece import WordPieces

KIND = "corpus"
ARRAYS = (
    "pieces.npy",
    "piece_starts.npy",
    "title_pieces.npy",
    "offsets.npy",
    "sentence_starts.npy",
    "sentence_ptr.npy",
    "text_starts.npy",
    "title_bytes.npy",
    "document.npy",
)
BOUNDS = ("piece_starts.npy", "sentence_ptr.npy", "text_starts.npy")
TEXT, VOCABULARY = "text.bin", "vocab.txt"
NAMES = (*ARRAYS, TEXT, VOCABULARY, IDS, STARTS)
TALLIES = ("skipped", "long", "encodings")  # each with its `_names`
COUNTS = (
    "documents",
    "passages",
    "pieces",
    "documents_with_id",
    "repeated_ids",
    *(field for name in TALLIES for field in (name, f"{name}_names")),
)
SHARD_BATCHES = 16  # batches of documents per shard; a killed build continues after a shard
_BATCH_PASSAGES = 1024


class StoreWriter:
    """Appends blocks of passages to a folder; `commit` publishes it as a corpus.

    Args:
      path: the folder; new, empty or unfinished (see `FolderWriter`).
      vocabulary: a BERT vocab.txt; copied into the folder.
      passage_pieces: maximum word pieces of a passage; 0 if the passages are already split.

    Attributes:
      tokenizer: the word-piece tokenizer with this vocabulary.
      documents: number of documents appended so far.
      remarks: those of the blocks appended so far.
      last_shard: the fields of the last `finish_shard` of a killed build that is continued; None if
        nothing is continued.

    Raises:
      InputError: the vocabulary or the folder cannot be used.
    """

    def __init__(self, path: str | Path, vocabulary: str | Path, passage_pieces: int = 0):
        self.tokenizer = WordPieces.load(vocabulary)
        self._settings = {"passage_pieces": passage_pieces, "vocabulary": self.tokenizer.sha256}
        # With the names, an unfinished folder of a version with other files is started again.
        journal = {**self._settings, "files": [*NAMES]}
        self._folder = FolderWriter(path, KIND, NAMES, journal, unhashed={IDS, STARTS})
        self.last_shard = self._folder.last_shard
        (self._folder.path / VOCABULARY).write_bytes(Path(vocabulary).read_bytes())
        array = self._folder.array
        self._pieces = array("pieces.npy", np.uint16 if self.tokenizer.size < 65536 else np.int32)
        self._offsets = array("offsets.npy", np.int32, width=2)
        self._title_pieces = array("title_pieces.npy", np.int32)
        self._sentence_starts = array("sentence_starts.npy", np.int32)
        self._title_bytes = array("title_bytes.npy", np.int32)
        self._document = array("document.npy", np.int64)
        self._text = self._folder.bytes(TEXT)
        self._ids = DocumentIdsWriter(self._folder.bytes(IDS), array(STARTS, np.int64))
        self._bounds = {name: array(name, np.int64) for name in BOUNDS}
        self._ends = (
            dict.fromkeys(BOUNDS, 0) if self.last_shard is None else self.last_shard["ends"]
        )
        self.documents = 0 if self.last_shard is None else self.last_shard["documents"]
        self.remarks = Tally()
        if self.last_shard is not None:
            self.remarks.merge(Tally.from_json(self.last_shard["remarks"]))
        for bounds in self._bounds.values() if self.last_shard is None else ():
            bounds.append(np.zeros(1, np.int64))

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def passages(self) -> int:
        """Passages appended so far."""
        return self._document.size

    def append(self, block: Block) -> None:
        """Appends the passages of a block."""
        self._pieces.append(block.pieces)
        self._offsets.append(block.offsets)
        self._title_pieces.append(block.title_pieces)
        self._sentence_starts.append(block.sentence_starts)
        self._title_bytes.append(block.title_bytes)
        self._document.append(block.document + self.documents)
        self._text.append(block.text)
        self._ids.append(block)
        self._append_bounds("piece_starts.npy", block.piece_counts)
        self._append_bounds("sentence_ptr.npy", block.sentence_counts)
        self._append_bounds("text_starts.npy", block.text_bytes)
        self.documents += block.documents
        self.remarks.merge(block.remarks)

    def _append_bounds(self, name: str, counts: np.ndarray) -> None:
        if len(counts):
            bounds = self._ends[name] + np.cumsum(counts)
            self._bounds[name].append(bounds)
            self._ends[name] = int(bounds[-1])

    def finish_shard(self, **fields: Any) -> None:
        """Makes all passages so far durable; a later writer finds `fields` in its `last_shard`."""
        state = {"ends": self._ends, "documents": self.documents}
        self._folder.finish_shard(**fields, **state, remarks=self.remarks.to_json())

    def commit(self, skipped: Skipped | None = None, source: str | None = None) -> dict[str, Any]:
        """Publishes the corpus.

        Args:
          skipped: what the reader did not read; documents without word pieces are added to it.
          source: checksum of the documents (`InputChecksum`).

        Returns:
          `documents`, `passages`, `pieces`, `documents_with_id`, `repeated_ids` (documents that
          have the id of an earlier one), `corpus_hash`; `skipped`, `long` (sentences that were
          divided, titles that were cut) and `encodings` (files by detected encoding), each with
          the first names in `skipped_names`, `long_names` and `encodings_names`.

        Raises:
          InputError: there is no passage.
        """
        skipped = Skipped() if skipped is None else skipped
        long = Tally(self.remarks, self.remarks.names)
        skipped.merge(long.take("empty_body"))
        if not self.passages:
            raise no_passage(self._folder.path, skipped)
        self._folder.close()
        counts = {
            "documents": self.documents,
            "passages": self.passages,
            "pieces": self._pieces.size,
            **DocumentIds(self.path, self.documents).counts(),
        }
        for name, tally in zip(TALLIES, (skipped, long, skipped.decoded), strict=True):
            found = tally.to_json()
            counts |= {name: found["counts"], f"{name}_names": found["names"]}
        manifest = self._folder.commit(**counts, **self._settings, source=source)
        return {**counts, "corpus_hash": manifest["content_hash"]}

    def close(self) -> None:
        """Closes the files; without `commit` the folder stays unfinished."""
        self._folder.close()


class InputChecksum:
    """A running checksum of documents, by which a continued build recognizes its input."""

    def __init__(self) -> None:
        self._sum = hashlib.blake2b(digest_size=16)
        self._after: deque[str] = deque()

    def of(self, document_batches: Iterable[list[Document]]) -> Iterator[list[Document]]:
        """Yields the batches unchanged, and records the checksum after each."""
        for batch in document_batches:
            for document in batch:
                ends = (document.title, document.body, *([document.id] if document.id else ()))
                self._sum.update("".join(f"{part}\0" for part in ends).encode())
            self._after.append(self._sum.hexdigest())
            yield batch

    def next(self) -> str:
        """Returns the recorded checksums one by one: that after the first batch, the second, ..."""
        return self._after.popleft()


def no_passage(where: object, skipped: Tally) -> InputError:
    """The error for input without any text; `skipped` counts documents by reason."""
    return InputError(
        "the input has no passages",
        where=where,
        expected="at least one document with a body",
        found="all skipped: " + "; ".join(map(str.strip, skipped.lines()))
        if skipped
        else "no document",
    )


def write_store(
    path: str | Path,
    documents: Iterable[Document],
    vocabulary: str | Path,
    *,
    passage_pieces: int = PASSAGE_PIECES,
    workers: int = 1,
    skipped: Skipped | None = None,
    progress: Any = None,
) -> dict[str, Any]:
    """Splits documents into passages and writes them to a folder, in the same order.

    An unfinished folder is continued after its last finished shard if the documents are the same.

    Args:
      path: the folder; new, empty or unfinished.
      documents: read one by one, never held in memory together.
      vocabulary: a BERT vocab.txt; copied into the folder.
      passage_pieces: maximum word pieces of `[CLS] title [SEP] body [SEP]`.
      workers: number of processes that split and tokenize; does not change the corpus.
      skipped: what the reader of `documents` did not read; recorded in the manifest.
      progress: called as `progress(documents, passages)` after each batch.

    Returns:
      See `StoreWriter.commit`; and `resumed`, the passages of an earlier, killed build.

    Raises:
      InputError: see `StoreWriter`; or `passage_pieces` leaves no room for a body; or the
        unfinished folder was started with other documents.
    """
    if passage_pieces < LEAST_PIECES:
        raise InputError(
            "passages too short to hold a body",
            where="passage_pieces",
            expected=f"at least {LEAST_PIECES}",
            found=passage_pieces,
        )
    exit_if_imported_by_worker()  # before it opens the folder of its parent
    writer = StoreWriter(path, vocabulary, passage_pieces)
    source = InputChecksum()
    document_batches = source.of(batches(documents))
    try:
        done, checksum = _skip_finished(writer, document_batches, source)
        resumed = writer.passages
        split_batch = partial(_split, vocabulary=str(vocabulary), passage_pieces=passage_pieces)
        for block in in_order(split_batch, document_batches, workers):
            writer.append(block)
            done, checksum = done + 1, source.next()
            if done % SHARD_BATCHES == 0:
                writer.finish_shard(runs=done, source=checksum)
            if progress is not None:
                progress(writer.documents, writer.passages)
        return {**writer.commit(skipped, checksum), "resumed": resumed}
    finally:
        writer.close()


def _split(documents: list[Document], vocabulary: str, passage_pieces: int) -> Block:
    return split(documents, _load_tokenizer(vocabulary), passage_pieces)


@lru_cache(maxsize=1)
def _load_tokenizer(vocabulary: str) -> WordPieces:
    return WordPieces.load(vocabulary)


def _skip_finished(
    writer: StoreWriter, document_batches: Iterator[list[Document]], source: InputChecksum
) -> tuple[int, str]:
    """Skips the batches that are in the store; returns their number and checksum."""
    if writer.last_shard is None:
        return 0, ""
    done, checksum = writer.last_shard["runs"], ""
    for _ in islice(document_batches, done):
        checksum = source.next()
    if checksum != writer.last_shard["source"]:
        raise InputError(
            "the input is not that of the unfinished corpus in this folder",
            where=writer.path,
            expected=f"documents with checksum {writer.last_shard['source']}",
            found=checksum or "no document",
            fix="give the same --input, or delete the folder to start again",
        )
    return done, checksum


def write_passages(
    path: str | Path, passages: Iterable[tuple[str, Sequence[str]]], vocabulary: str | Path
) -> dict[str, Any]:
    """Writes passages that are already split: each (title, sentences) becomes one passage.

    The id of a passage is its position in `passages`; each passage counts as one document.

    Returns:
      See `StoreWriter.commit`.

    Raises:
      InputError: see `StoreWriter`; or a passage has no word pieces.
    """
    writer = StoreWriter(path, vocabulary)
    try:
        for batch in _batches(passages):
            block = block_of(batch, writer.tokenizer)
            if block.remarks:
                # Skipping it would shift the ids of the following passages.
                raise InputError(
                    "passage without text",
                    where=f"passages {writer.passages} to {writer.passages + len(batch) - 1}",
                    expected="at least one word piece in each passage",
                    found=f"{block.remarks.total()} without text",
                )
            writer.append(block)
        return writer.commit()
    finally:
        writer.close()


def _batches(passages: Iterable[tuple[str, Sequence[str]]]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for passage in passages:
        batch.append(passage)
        if len(batch) == _BATCH_PASSAGES:
            yield batch
            batch = []
    if batch:
        yield batch
