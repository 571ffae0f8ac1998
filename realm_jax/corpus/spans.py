"""Salient spans of the passages of one store: names and dates that pre-training may mask."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int32, Integer

from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError, MismatchError
from realm_jax.storage import integrity
from realm_jax.storage.appendable import FolderWriter

KIND = "spans"
_NAMES = ("spans.npy", "span_starts.npy", "own.npy", "evidence.npy")
_ROWS = 65_536  # whose lengths are looked up together
REBUILD = "realm tag annotate --corpus=CORPUS --out=FOLDER"
FOLDER = "spans"  # inside the passage store, unless another is given


class SpanStore:
    """Spans of every passage of a store, as (start, stop) in body pieces.

    Attributes:
      path: the folder.
      rows: Int64 [R], passages with at least one span.
      corpus_hash: the passage store the spans belong to.
      knowledge_hash: the store that `own` and `evidence` point into.
      own: Int64 [N], the passage of the knowledge corpus that contains this passage's text, -1 for
        none; None when not recorded.
      evidence: Int64 [N], a passage of the knowledge corpus known to state the same fact, -1 for
        unknown; None when not recorded.
    """

    def __init__(self, path: str | Path, store: PassageStore):
        """See `open`."""
        self.path = Path(path)
        manifest = integrity.read_sized(self.path, KIND, REBUILD)
        if manifest["corpus_hash"] != store.corpus_hash:
            raise MismatchError(
                "spans belong to another corpus",
                where=self.path,
                expected=f"corpus {store.corpus_hash} ({store.path})",
                found=f"corpus {manifest['corpus_hash']}",
                fix="annotate this corpus, or give the one the spans were made for",
            )
        self.manifest: dict[str, Any] = manifest
        self.corpus_hash: str = manifest["corpus_hash"]
        self.knowledge_hash: str = manifest["knowledge_hash"]
        self._store = store
        self._spans = np.asarray(np.load(self.path / "spans.npy", mmap_mode="r"))
        self._starts = np.asarray(np.load(self.path / "span_starts.npy", mmap_mode="r"))
        self.source: np.ndarray | None = self._optional(manifest, "own.npy")
        self.evidence: np.ndarray | None = self._optional(manifest, "evidence.npy")
        self.rows = np.flatnonzero(np.diff(self._starts))

    def _optional(self, manifest: dict[str, Any], name: str) -> np.ndarray | None:
        if name not in manifest["files"]:
            return None
        return np.asarray(np.load(self.path / name, mmap_mode="r"))

    @classmethod
    def open(cls, path: str | Path | None, store: PassageStore) -> "SpanStore":
        """Opens the spans in folder `path`, by default `spans/` inside the store.

        Raises:
          InputError: there are none, or they are unfinished.
          DamageError: a file is missing or has another size.
          MismatchError: they were made for another store.
        """
        return cls(store.path / FOLDER if path is None else path, store)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SpanStore, (self.path, self._store))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def of(self, i: int) -> Int32[np.ndarray, "s 2"]:
        """Spans of passage `i` in order."""
        return np.array(self._spans[self._starts[i] : self._starts[i + 1]])

    def verify(self) -> list[dict[str, Any]]:
        """Files whose checksum is not the promised one."""
        return integrity.verify(epath.Path(self.path))

    @classmethod
    def write(
        cls,
        path: str | Path | None,
        store: PassageStore,
        spans: Iterable[Sequence[tuple[int, int]]],
        *,
        source: Integer[np.ndarray, "N"] | None = None,
        evidence: Integer[np.ndarray, "N"] | None = None,
        knowledge: PassageStore | None = None,
    ) -> "SpanStore":
        """Writes the spans of every passage of `store`, in row order, and opens them.

        Args:
          path: a fresh folder; None is `spans/` inside the store.
          store: the passages X that the spans lie in.
          spans: one sequence of (start, stop) per passage; may be a generator.
          own: see the attribute.
          evidence: see the attribute.
          knowledge: the store Z that `own` and `evidence` point into; X itself by default.

        Raises:
          InputError: another number of passages than the store has, a span outside its body, an
            id outside the knowledge corpus, or a folder that is in use.
        """
        knowledge = store if knowledge is None else knowledge
        path = store.path / FOLDER if path is None else Path(path)
        with FolderWriter(path, KIND, _NAMES) as folder:
            flat = folder.array("spans.npy", np.int32, width=2)
            starts = folder.array("span_starts.npy", np.int64)
            starts.append(np.zeros(1, np.int64))
            lengths = chain(_body_lengths(store), repeat(0))
            for i, (pairs, length) in enumerate(zip(spans, lengths, strict=False)):
                flat.append(_checked(i, pairs, length))
                starts.append(np.array([flat.size]))
            if starts.size != len(store) + 1:
                raise InputError(
                    "spans are not one sequence per passage",
                    where=path,
                    expected=f"{len(store)} passages",
                    found=f"{starts.size - 1}",
                )
            for name, ids in (("own.npy", source), ("evidence.npy", evidence)):
                if ids is not None:
                    folder.array(name, np.int64).append(_checked_ids(name, ids, store, knowledge))
            folder.commit(
                corpus_hash=store.corpus_hash,
                knowledge_hash=knowledge.corpus_hash,
                passages=len(store),
                spans=flat.size,
            )
        return cls(path, store)


def _body_lengths(store: PassageStore) -> Iterator[int]:
    """Body pieces of every passage, in order."""
    for first in range(0, len(store), _ROWS):
        starts, stops = store.body_bounds(np.arange(first, min(first + _ROWS, len(store))))
        yield from (stops - starts).tolist()


def _checked(i: int, pairs: Sequence[tuple[int, int]], length: int) -> Int32[np.ndarray, "s 2"]:
    array = np.array(pairs, np.int32).reshape(-1, 2)
    for start, stop in array.tolist():
        if not 0 <= start < stop <= length:
            raise InputError(
                "span outside its passage",
                where=f"passage {i}",
                expected=f"0 <= start < stop <= {length} body pieces",
                found=f"({start}, {stop})",
            )
    return array


def _checked_ids(
    name: str, ids: Integer[np.ndarray, "N"], store: PassageStore, knowledge: PassageStore
) -> np.ndarray:
    if ids.shape != (len(store),) or ids.min() < -1 or ids.max() >= len(knowledge):
        raise InputError(
            "passage ids do not fit",
            where=name,
            expected=f"{len(store)} ids, -1 to {len(knowledge) - 1}",
            found=f"shape {ids.shape}, {ids.min()} to {ids.max()}",
        )
    return ids


def char_spans_to_pieces(
    offsets: Int32[np.ndarray, "n 2"], spans: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Character spans as runs (start, stop) of the pieces fully inside them (REALM section 4).

    `offsets` of "Paris in 1999" are (0, 5), (6, 8), (9, 13): the span (6, 13) is pieces (1, 3), and
    (7, 13) is (2, 3). A span with no piece fully inside is left out.
    """
    bounds = np.array(list(spans), np.int64).reshape(-1, 2)
    first = np.searchsorted(offsets[:, 0], bounds[:, 0], "left").tolist()
    stop = np.searchsorted(offsets[:, 1], bounds[:, 1], "right").tolist()
    return [(a, b) for a, b in zip(first, stop, strict=True) if a < b]
