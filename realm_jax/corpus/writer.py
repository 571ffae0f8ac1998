"""Writing a passage store, block by block; memory does not grow with the corpus."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.corpus.folder import FolderWriter
from realm_jax.corpus.parallel import in_order
from realm_jax.corpus.readers import Document
from realm_jax.corpus.split import PASSAGE_PIECES, SPECIAL_PIECES, Block, block_of
from realm_jax.errors import InputError
from realm_jax.text.wordpiece import WordPieces

KIND = "passage store"
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
TEXT, VOCABULARY = "text.bin", "vocab.txt"
_BATCH_PASSAGES = 1024


class StoreWriter:
    """Appends blocks of passages to a fresh folder; `commit` makes it a store.

    Raises:
      InputError: for the vocabulary or the folder (`FolderWriter`).
    """

    def __init__(self, path: str | Path, vocabulary: str | Path):
        self.words = WordPieces.load(vocabulary)
        self._folder = FolderWriter(path, KIND, (*ARRAYS, TEXT, VOCABULARY))
        (self._folder.path / VOCABULARY).write_bytes(Path(vocabulary).read_bytes())
        array = self._folder.array
        self._pieces = array("pieces.npy", np.uint16 if self.words.size < 65536 else np.int32)
        self._offsets = array("offsets.npy", np.int32, width=2)
        self._title_pieces = array("title_pieces.npy", np.int32)
        self._sentence_starts = array("sentence_starts.npy", np.int32)
        self._title_bytes = array("title_bytes.npy", np.int32)
        self._document = array("document.npy", np.int64)
        self._bounds = {
            name: array(name, np.int64)
            for name in ("piece_starts.npy", "sentence_ptr.npy", "text_starts.npy")
        }
        self._ends = dict.fromkeys(self._bounds, 0)
        for bounds in self._bounds.values():
            bounds.append(np.zeros(1, np.int64))
        self._text = (self._folder.path / TEXT).open("wb")
        self.documents = 0

    @property
    def passages(self) -> int:
        """Passages appended so far."""
        return self._document.rows

    def append(self, block: Block) -> None:
        """Adds the passages of a block, in order."""
        self._pieces.append(block.pieces)
        self._offsets.append(block.offsets)
        self._title_pieces.append(block.title_pieces)
        self._sentence_starts.append(block.sentence_starts)
        self._title_bytes.append(block.title_bytes)
        self._document.append(block.document + self.documents)
        self._text.write(block.text)
        self._count("piece_starts.npy", block.piece_counts)
        self._count("sentence_ptr.npy", block.sentence_counts)
        self._count("text_starts.npy", block.text_bytes)
        self.documents += block.documents

    def _count(self, name: str, counts: np.ndarray) -> None:
        if len(counts):
            bounds = self._ends[name] + np.cumsum(counts)
            self._bounds[name].append(bounds)
            self._ends[name] = int(bounds[-1])

    def commit(self, passage_pieces: int, skipped: Counter[str]) -> dict[str, Any]:
        """Finishes the store.

        Args:
          passage_pieces: the budget the passages were cut for, or 0 when they came cut.
          skipped: documents left out, by reason.

        Returns:
          `documents`, `passages`, `pieces`, `skipped` and `corpus_hash`.

        Raises:
          InputError: there is no passage.
        """
        self._text.close()
        if not self.passages:
            raise InputError(
                "the input gave no passage",
                where=self._folder.path,
                expected="at least one document with a title and a body",
                found=f"all left out: {dict(skipped)}" if skipped else "no document",
            )
        facts = {
            "documents": self.documents,
            "passages": self.passages,
            "pieces": self._pieces.rows,
            "skipped": dict(sorted(skipped.items())),
        }
        manifest = self._folder.commit(
            **facts, passage_pieces=passage_pieces, vocabulary=self.words.sha256
        )
        return {**facts, "corpus_hash": manifest["content_hash"]}

    def close(self) -> None:
        """Closes the files; the store stays unfinished unless `commit` came before."""
        self._text.close()
        self._folder.close()


def write_store(
    path: str | Path,
    documents: Iterable[Document],
    vocabulary: str | Path,
    *,
    passage_pieces: int = PASSAGE_PIECES,
    workers: int = 1,
    skipped: Counter[str] | None = None,
    progress: Any = None,
) -> dict[str, Any]:
    """Cuts documents into passages and writes them to a fresh folder, in the order given.

    Args:
      path: the folder; must be new, empty or left unfinished.
      documents: taken one by one, never held together.
      vocabulary: a BERT vocab.txt; copied into the store.
      passage_pieces: budget of `[CLS] title [SEP] body [SEP]`.
      workers: processes that split and tokenise; the store is the same for every number.
      skipped: what the reader of `documents` counts; goes into the manifest.
      progress: called as `progress(documents, passages)` now and then.

    Returns:
      See `StoreWriter.commit`.

    Raises:
      InputError: see `StoreWriter`; or a budget that leaves no room for a body.
    """
    if passage_pieces < 2 * SPECIAL_PIECES:
        raise InputError(
            "passages too short to hold a body",
            where="passage_pieces",
            expected=f"at least {2 * SPECIAL_PIECES}",
            found=passage_pieces,
        )
    counted: Counter[str] = Counter() if skipped is None else skipped
    writer = StoreWriter(path, vocabulary)
    try:
        for block in in_order(documents, vocabulary, passage_pieces, workers):
            writer.append(block)
            if block.empty:
                counted["empty_body"] += block.empty
            if progress is not None:
                progress(writer.documents, writer.passages)
        return writer.commit(passage_pieces, counted)
    finally:
        writer.close()


def write_passages(
    path: str | Path, passages: Iterable[tuple[str, Sequence[str]]], vocabulary: str | Path
) -> dict[str, Any]:
    """Writes passages that come cut: each (title, sentences) is one passage, whatever its length.

    The row of a passage in the store is its place in `passages`; each counts as a document.

    Returns:
      See `StoreWriter.commit`.

    Raises:
      InputError: see `StoreWriter`; or a passage without a word piece.
    """
    writer = StoreWriter(path, vocabulary)
    try:
        for batch in _batches(passages):
            block = block_of(batch, writer.words)
            if block.empty:
                # Leaving it out would shift the rows that the caller counts on.
                raise InputError(
                    "passage without text",
                    where=f"passages {writer.passages} to {writer.passages + len(batch) - 1}",
                    expected="at least one sentence with a word piece in each",
                    found=f"{block.empty} without",
                )
            writer.append(block)
        return writer.commit(0, Counter())
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
