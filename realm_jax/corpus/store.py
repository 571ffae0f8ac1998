"""The passage store: a corpus as an immutable folder of memory-mapped arrays.

A passage id is its row, 0 to N - 1; every build from the same input gives the same ids.

| file | dtype, shape | content |
|---|---|---|
| `pieces.npy` | uint16 (int32 for V >= 65,536) [T] | word-piece ids: per passage title, then body |
| `piece_starts.npy` | int64 [N + 1] | start of each passage in `pieces` and `offsets` |
| `title_pieces.npy` | int32 [N] | number of pieces of the title |
| `offsets.npy` | int32 [T, 2] | (start, stop) of each piece in characters of title or body |
| `sentence_starts.npy` | int32 [S] | index of the first piece of each sentence in its body |
| `sentence_ptr.npy` | int64 [N + 1] | start of each passage in `sentence_starts` |
| `text.bin`, `text_starts.npy`, `title_bytes.npy` | bytes, int64 [N + 1], int32 [N] | UTF-8 texts |
| `document.npy` | int64 [N] | number of the document of each passage |
| `document_ids.bin`, `document_id_starts.npy` | | see `DocumentIds` |
| `vocab.txt` | | the vocabulary of `pieces` |
| `MANIFEST.json` | | counts, checksums; written last |
"""

import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Bool, Int32, Int64, Integer

from realm_jax.corpus.document_ids import DocumentIds
from realm_jax.corpus.generation_files import generation_problems
from realm_jax.corpus.split import Block
from realm_jax.corpus.store_writer import COUNTS, KIND, NAMES, TEXT, VOCABULARY
from realm_jax.corpus.tally import Tally
from realm_jax.errors import InputError
from realm_jax.storage import integrity
from realm_jax.storage.files import PARTIAL
from realm_jax.storage.layout import BM25
from realm_jax.text.wordpiece import WordPieces

REBUILD = "realm corpus build --format=FORMAT --input=INPUT --out=FOLDER"

Bounds = tuple[Int64[np.ndarray, "R"], Int64[np.ndarray, "R"]]


class Part(NamedTuple):
    """Passages of a corpus that lie in one folder.

    Attributes:
      store: that folder.
      rows: rows of the passages there.
      ids: their passage ids in the corpus.
    """

    store: "PassageStore"
    rows: Int64[np.ndarray, "R"]
    ids: Int64[np.ndarray, "R"]


class PassageStore:
    """Read access to a finished corpus; opening reads only the manifest.

    Attributes:
      path: the folder.
      corpus_hash: hash of all files except document ids; indexes and spans record it.
      manifest: see `StoreWriter.commit`.
      flat: all word pieces, [T]; `title_bounds` and `body_bounds` index it for many passages.
      document_ids: of each document, as its source gives it; "" if none.
      generation: 1; more if documents were added, replaced or removed since the build.
    """

    generation = 1

    def __init__(self, path: str | Path):
        """See `open`."""
        self.path = Path(path)
        self.manifest: dict[str, Any] = integrity.read_sized(
            self.path, KIND, REBUILD, documents=int
        )
        if self.manifest.get("compacted"):
            raise InputError(
                "the files of the first generation were deleted by a compaction",
                where=self.path,
                expected="the newest generation",
                found="generation 1",
            )
        self.corpus_hash: str = self.manifest["content_hash"]
        self.flat = self._map("pieces")
        self._offsets = self._map("offsets")
        self._sentence_starts = self._map("sentence_starts")
        self._piece_starts = self._map("piece_starts")
        self._title_pieces = self._map("title_pieces")
        self._sentence_ptr = self._map("sentence_ptr")
        self._text_starts = self._map("text_starts")
        self._title_bytes = self._map("title_bytes")
        self._document = self._map("document")
        self._text = np.memmap(self.path / TEXT, np.uint8, "r")
        self.document_ids = DocumentIds(self.path, self.manifest["documents"])

    @classmethod
    def open(cls, path: str | Path, generation: int | None = None) -> "PassageStore":
        """Opens the corpus in folder `path`.

        Args:
          path: the folder.
          generation: of a corpus that has grown (`generation_files`); None: the newest one.

        Raises:
          InputError: the folder does not exist, is unfinished or is of another kind; or the
            generation does not exist, or not any more.
          DamageError: a file is missing or has another size than in the manifest.
        """
        from realm_jax.corpus.layered_store import open_generation  # its stores are of this class

        return open_generation(path, generation)

    def newest(self) -> "PassageStore":
        """The newest generation of this corpus; what has not changed since is not opened again.

        Raises:
          InputError: see `open`.
          DamageError: see `open`.
        """
        from realm_jax.corpus.layered_store import open_generation

        return open_generation(self.path, None, self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled as a path: another process maps the same files.
        return (PassageStore, (self.path,))

    def _map(self, name: str) -> np.ndarray:
        # As a plain array: indexing np.memmap is several times slower.
        return np.asarray(np.load(self.path / f"{name}.npy", mmap_mode="r"))

    def __len__(self) -> int:
        """The highest passage id plus 1; also counts ids of removed passages."""
        return len(self._document)

    @property
    def lineage(self) -> tuple[str, ...]:
        """`corpus_hash` of each generation, from the first to this one."""
        return (self.corpus_hash,)

    def generation_of(self, corpus_hash: str) -> int:
        """The last generation with this hash, which is in `lineage`."""
        return len(self.lineage) - self.lineage[::-1].index(corpus_hash)

    @property
    def layers(self) -> list[int]:
        """The generations whose files make up this one, oldest first."""
        return [self.generation]

    def passages(self) -> int:
        """Number of passages that exist."""
        return len(self)

    def live_ids(self) -> Int64[np.ndarray, "L"]:
        """Ids, ascending, of the passages that exist."""
        return np.arange(len(self))

    def is_live(self, ids: Integer[np.ndarray, "R"]) -> Bool[np.ndarray, "R"]:
        """Whether passages with these ids, which may be any integers, exist."""
        return (np.asarray(ids) >= 0) & (np.asarray(ids) < len(self))

    def parts(self) -> "Iterator[Part]":
        """The folders of the passages that exist; ids are ascending in each."""
        yield Part(self, self.live_ids(), self.live_ids())

    def changed_since(self, generation: int) -> Int64[np.ndarray, "C"]:
        """Ids, ascending, of passages that were written or removed after a generation.

        Of a passage that was written and then removed, the id is one of them.
        """
        return np.empty(0, np.int64)

    def summary(self) -> dict[str, Any]:
        """The counts of the manifest and `corpus_hash`, as `StoreWriter.commit` returns them.

        A corpus of an earlier version has fewer of them.
        """
        counts = {name: self.manifest[name] for name in COUNTS if name in self.manifest}
        return counts | {"corpus_hash": self.corpus_hash}

    @cached_property
    def vocabulary(self) -> WordPieces:
        """The vocabulary in the folder."""
        return WordPieces.load(self.path / VOCABULARY)

    def title(self, i: int) -> str:
        """Text of the title of passage `i`; not truncated."""
        begin = int(self._text_starts[i])
        return self._decode(begin, begin + int(self._title_bytes[i]))

    def body(self, i: int) -> str:
        """Text of the body of passage `i`: its sentences joined by one space."""
        begin = int(self._text_starts[i]) + int(self._title_bytes[i])
        return self._decode(begin, int(self._text_starts[i + 1]))

    def _decode(self, begin: int, stop: int) -> str:
        return self._text[begin:stop].tobytes().decode("utf-8")

    def title_ids(self, i: int) -> Int32[np.ndarray, "n"]:
        """Word-piece ids of the title."""
        begin, stop = self._title_range(i)
        return self.flat[begin:stop].astype(np.int32)

    def body_ids(self, i: int) -> Int32[np.ndarray, "n"]:
        """Word-piece ids of the body, without [CLS] and [SEP]."""
        begin, stop = self._body_range(i)
        return self.flat[begin:stop].astype(np.int32)

    def body_offsets(self, i: int) -> Int32[np.ndarray, "n 2"]:
        """(start, stop) of each body piece in characters of `body(i)`."""
        begin, stop = self._body_range(i)
        return np.array(self._offsets[begin:stop])

    def sentences(self, i: int) -> Int32[np.ndarray, "bounds"]:
        """Sentence bounds in body pieces: sentence s has the pieces bounds[s] to bounds[s + 1]."""
        starts = self._sentence_starts[self._sentence_ptr[i] : self._sentence_ptr[i + 1]]
        begin, stop = self._body_range(i)
        return np.append(starts, np.int32(stop - begin))

    def document(self, i: int) -> int:
        """Number of the document of passage `i`."""
        return int(self._document[i])

    def documents(self, rows: Integer[np.ndarray, "R"]) -> Int64[np.ndarray, "R"]:
        """Numbers of the documents of several passages; -1 for one without text."""
        return np.asarray(self._document[rows])

    def text_sizes(self, rows: Integer[np.ndarray, "R"]) -> Int64[np.ndarray, "R"]:
        """Bytes of title and body of several passages."""
        return np.asarray(self._text_starts[rows + 1] - self._text_starts[rows])

    def document_id(self, i: int) -> str:
        """Id of the document of passage `i`, as its source gives it; "" if it has none.

        All passages of a document have the same one.
        """
        document = self.document(i)
        return self.document_ids[document] if document >= 0 else ""

    def block(self, start: int, stop: int) -> Block:
        """Passages `start` to `stop` (at least one) as a block; documents keep their numbers."""
        piece, sentence, byte = (
            bounds[start : stop + 1]
            for bounds in (self._piece_starts, self._sentence_ptr, self._text_starts)
        )
        document = self._document[start:stop]
        return Block(
            pieces=self.flat[piece[0] : piece[-1]].astype(np.int32),
            offsets=self._offsets[piece[0] : piece[-1]],
            piece_counts=np.diff(piece),
            title_pieces=self._title_pieces[start:stop],
            sentence_starts=self._sentence_starts[sentence[0] : sentence[-1]],
            sentence_counts=np.diff(sentence),
            text=self._text[byte[0] : byte[-1]].tobytes(),
            text_bytes=np.diff(byte),
            title_bytes=self._title_bytes[start:stop],
            document=document,
            document_ids=[self.document_id(i) for i in range(start, stop)],
            documents=int(document[-1]) + 1,
            remarks=Tally(),
        )

    def lengths(self) -> Int32[np.ndarray, "N"]:
        """Word pieces of `[CLS] title [SEP] body [SEP]` of every passage, not truncated."""
        return (np.diff(self._piece_starts) + 3).astype(np.int32)

    def sentence_lengths(self) -> Int32[np.ndarray, "S"]:
        """Length of every sentence of the corpus in word pieces, in order."""
        starts, stops = self.body_bounds(np.arange(len(self)))
        ends = np.append(self._sentence_starts[1:], np.int32(0))
        some = np.diff(self._sentence_ptr) > 0  # a removed passage has no sentence
        ends[self._sentence_ptr[1:][some] - 1] = (stops - starts)[some]
        return ends - self._sentence_starts

    def sentence_lengths_of(self, rows: Integer[np.ndarray, "R"]) -> Int32[np.ndarray, "S"]:
        """The lengths of the sentences of some passages, whose ids are ascending."""
        chosen = np.zeros(len(self), bool)
        chosen[rows] = True
        return self.sentence_lengths()[np.repeat(chosen, np.diff(self._sentence_ptr))]

    def title_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """Start and stop in `flat` of the titles of several passages."""
        starts = self._piece_starts[rows]
        return starts, starts + self._title_pieces[rows]

    def body_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """Start and stop in `flat` of the bodies of several passages."""
        starts = self._piece_starts[rows] + self._title_pieces[rows]
        return starts, self._piece_starts[np.asarray(rows) + 1]

    def _title_range(self, i: int) -> tuple[int, int]:
        begin = int(self._piece_starts[i])
        return begin, begin + int(self._title_pieces[i])

    def _body_range(self, i: int) -> tuple[int, int]:
        return self._title_range(i)[1], int(self._piece_starts[i + 1])

    def verify(self) -> list[dict[str, Any]]:
        """Compares every byte with the manifest; see `verify`."""
        return verify(self.path)


def verify(path: epath.PathLike) -> list[dict[str, Any]]:
    """Compares every byte of a corpus with its manifests, also if it is too damaged to open.

    Returns:
      `[{"file", "expected", "found"}]`, see `integrity.verify`; one that an interrupted compaction
      has left also has a `fix`.
    """
    fix = {
        "fix": f"finish the interrupted compaction: realm corpus compact {shlex.quote(str(path))}"
    }
    of_files = integrity.verify(epath.Path(path))
    of_files = [one | fix if _is_left_by_compaction(one) else one for one in of_files]
    return of_files + generation_problems(path)


def _is_left_by_compaction(problem: dict[str, Any]) -> bool:
    name = problem["file"]
    deleted = name in NAMES or name.endswith(PARTIAL) or name.startswith(f"{BM25}/")
    return problem["expected"] == integrity.NO_FILE and deleted
