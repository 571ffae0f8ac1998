"""Ids of documents as their source gives them (`_id`, `id`), in two files of the corpus folder.

| file | dtype, shape | content |
|---|---|---|
| `document_ids.bin` | bytes | UTF-8 of the ids, "" for a document without one |
| `document_id_starts.npy` | int64 [D + 1] | start of the id of each document |

They do not count in `corpus_hash`: indexes and spans depend on the passages only.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from realm_jax.corpus.split import Block
from realm_jax.storage.appendable import ArrayFile, BytesFile

IDS, STARTS = "document_ids.bin", "document_id_starts.npy"


class DocumentIds(Sequence[str]):
    """The id of each document, D strings; "" where the source gives none.

    Args:
      folder: a corpus; one of an earlier version has no ids.
      documents: D.
    """

    def __init__(self, folder: Path, documents: int):
        self._documents = documents
        self._starts, self._bytes = np.zeros(documents + 1, np.int64), np.empty(0, np.uint8)
        if (folder / STARTS).exists():
            self._starts = np.asarray(np.load(folder / STARTS, mmap_mode="r"))
        if self._starts[-1]:  # numpy cannot map an empty file
            self._bytes = np.memmap(folder / IDS, np.uint8, "r")

    def __len__(self) -> int:
        return self._documents

    def __getitem__(self, document: int) -> str:  # type: ignore[override]  # no slices
        if not 0 <= document < self._documents:
            raise IndexError(document)
        begin, stop = self._starts[document : document + 2].tolist()
        return self._bytes[begin:stop].tobytes().decode()

    def lengths(self) -> Int64[np.ndarray, "D"]:
        """Bytes of each id."""
        return np.diff(self._starts)

    def counts(self) -> dict[str, int]:
        """Number of documents with an id, and of those that repeat the id of an earlier one."""
        digests = np.fromiter((_digest(one) for one in self if one), np.uint64)
        return {
            "documents_with_id": len(digests),
            "repeated_ids": len(digests) - len(np.unique(digests)),
        }


class JoinedDocumentIds(Sequence[str]):
    """The ids of the documents of several corpora, one corpus after the other.

    Attributes:
      starts: Int64 [corpora + 1], the number of the first document of each, and the end.
    """

    def __init__(self, corpora: Sequence[DocumentIds]):
        self._corpora = corpora
        self.starts = np.cumsum([0, *map(len, corpora)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, document: int) -> str:  # type: ignore[override]  # no slices
        if not 0 <= document < len(self):
            raise IndexError(document)
        corpus = int(np.searchsorted(self.starts, document, "right")) - 1
        return self._corpora[corpus][document - int(self.starts[corpus])]


class DocumentIdsWriter:
    """Appends the ids of documents to the two files of an unfinished corpus."""

    def __init__(self, ids: BytesFile, starts: ArrayFile):
        self._ids, self._starts = ids, starts
        if not starts.size:
            starts.append(np.zeros(1, np.int64))

    def append(self, block: Block) -> None:
        """Appends the ids of the documents that begin in a block."""
        encoded = [one.encode() for one in _new_documents(block)]
        ends = self._ids.size + np.cumsum([len(one) for one in encoded], dtype=np.int64)
        self._ids.append(b"".join(encoded))
        self._starts.append(ends)


def _new_documents(block: Block) -> Iterator[str]:
    # A block may begin with passages of a document of the block before; its number is negative.
    for row in np.flatnonzero(np.diff(block.document, prepend=-1) > 0).tolist():
        yield block.document_ids[row]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
