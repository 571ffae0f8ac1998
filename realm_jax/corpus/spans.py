"""The span store: salient spans of a corpus, such as names and dates, which pre-training masks."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int32, Integer, UInt8

from realm_jax.corpus.dedup import source_passages
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError, MismatchError
from realm_jax.storage import integrity
from realm_jax.storage.appendable import FolderWriter
from realm_jax.storage.layout import MANIFEST

KIND = "spans"
TERMS = "rare_terms.npy"  # `RareTerms.bits` of the corpus, if rare terms are marked
_NAMES = ("spans.npy", "span_starts.npy", "own.npy", "evidence.npy", TERMS)
_ROWS = 65_536  # passages whose lengths are read at a time
REBUILD = "realm tag annotate --corpus=CORPUS --out=FOLDER"
FOLDER = "spans"  # default folder inside the corpus


def mark_command(corpus: str | Path) -> str:
    """The command that marks the salient spans of a corpus."""
    out = Path(corpus) / FOLDER
    return shlex.join(["realm", "tag", "annotate", f"--corpus={corpus}", f"--out={out}"])


class SpanStore:
    """Spans of every passage of a corpus, as (start, stop) in body pieces.

    Attributes:
      path: the folder.
      manifest: its manifest.
      rows: Int64 [R], ids of the passages with at least one span.
      corpus_hash: hash of the corpus X of the spans.
      knowledge_hash: hash of the corpus Z of the ids in `source` and `evidence`.
      source: Int64 [N], the passage of Z with the same text as each passage of X (file `own.npy`);
        -1 if there is none. None if not recorded.
      evidence: Int64 [N], a passage of Z that states the same fact as each passage of X; -1 if
        unknown. None if not recorded.
    """

    def __init__(self, path: str | Path, store: PassageStore):
        """See `open`."""
        self.path = Path(path)
        hashes = {"corpus_hash": str, "knowledge_hash": str}
        manifest = integrity.read_sized(self.path, KIND, REBUILD, **hashes)
        if manifest["corpus_hash"] not in store.lineage:
            raise MismatchError(
                "spans belong to another corpus",
                where=self.path,
                expected=f"corpus {store.corpus_hash} ({store.path})",
                found=f"corpus {manifest['corpus_hash']}",
                fix="mark the spans of this corpus (realm tag annotate), or use the other corpus",
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
        """Opens the spans in folder `path`; by default `spans/` inside the corpus.

        Spans of an earlier generation are used for the passages that are as they were.

        Raises:
          InputError: there are no spans, or they are unfinished.
          DamageError: a file is missing or has another size.
          MismatchError: the spans belong to another corpus.
        """
        if path is None:
            path = store.path / FOLDER
            if not any((path / name).exists() for name in (MANIFEST, integrity.OLD_MANIFEST)):
                raise InputError(
                    "the salient spans of this corpus are not marked",
                    where=path,
                    expected=f"a folder with {MANIFEST}",
                    found="none: the build was interrupted before its end",
                    fix=mark_command(store.path),
                )
        if store.generation == 1:
            return cls(path, store)
        from realm_jax.corpus.layered_spans import LayeredSpans  # a subclass

        return LayeredSpans(path, store)

    def follow(self, knowledge: PassageStore) -> None:
        """Brings `source` and `evidence` to a later generation of the knowledge corpus Z.

        Args:
          knowledge: Z; its `lineage` has `knowledge_hash`.
        """
        is_same = self.knowledge_hash == knowledge.corpus_hash
        if is_same and self.corpus_hash == self._store.corpus_hash:
            return
        if self.source is not None:
            self.source = source_passages(self._store, knowledge)
        if self.evidence is not None:
            changed = knowledge.changed_since(knowledge.generation_of(self.knowledge_hash))
            self.evidence = np.where(np.isin(self.evidence, changed), -1, self.evidence)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SpanStore, (self.path, self._store))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def of(self, i: int) -> Int32[np.ndarray, "s 2"]:
        """Spans of passage `i`, in order."""
        return np.array(self._spans[self._starts[i] : self._starts[i + 1]])

    def verify(self) -> list[dict[str, Any]]:
        """Compares every byte with the manifest; see `integrity.verify`."""
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
        kinds: Mapping[str, int] | None = None,
        terms: UInt8[np.ndarray, "_"] | None = None,
    ) -> "SpanStore":
        """Writes the spans of every passage of `store`, in row order, and opens them.

        Args:
          path: a new folder; None is `spans/` inside the corpus.
          store: the corpus X of the spans.
          spans: one sequence of (start, stop) per passage; may be a generator.
          source: see the attribute.
          evidence: see the attribute.
          knowledge: the corpus Z of the ids in `source` and `evidence`; X itself by default.
          kinds: number of spans of each kind, for the manifest; read after `spans` has ended.
          terms: `RareTerms.bits` by which rare terms were marked; passages that are added later are
            marked by the same.

        Raises:
          InputError: the number of sequences differs from the number of passages, a span is outside
            its body, an id is outside Z, or the folder is not empty.
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
                    "there is not one sequence of spans per passage",
                    where=path,
                    expected=f"{len(store)} passages",
                    found=f"{starts.size - 1}",
                )
            for name, ids in (("own.npy", source), ("evidence.npy", evidence)):
                if ids is not None:
                    folder.array(name, np.int64).append(_checked_ids(name, ids, store, knowledge))
            if terms is not None:
                folder.array(TERMS, np.uint8).append(terms)
            folder.commit(
                corpus_hash=store.corpus_hash,
                knowledge_hash=knowledge.corpus_hash,
                passages=len(store),
                spans=flat.size,
                kinds=dict(kinds or {}),
            )
        return cls(path, store)


def _body_lengths(store: PassageStore) -> Iterator[int]:
    """Number of body pieces of every passage, in order."""
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
            "passage ids have the wrong number or range",
            where=name,
            expected=f"{len(store)} ids, -1 to {len(knowledge) - 1}",
            found=f"shape {ids.shape}, {ids.min()} to {ids.max()}",
        )
    return ids


def char_spans_to_pieces(
    offsets: Int32[np.ndarray, "n 2"], spans: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Converts character spans to (start, stop) of the word pieces that are fully inside them.

    For "Paris in 1999" with offsets (0, 5), (6, 8), (9, 13), the span (6, 13) gives (1, 3) and
    (7, 13) gives (2, 3). A span without a piece fully inside is omitted.
    """
    bounds = np.array(list(spans), np.int64).reshape(-1, 2)
    first = np.searchsorted(offsets[:, 0], bounds[:, 0], "left").tolist()
    stop = np.searchsorted(offsets[:, 1], bounds[:, 1], "right").tolist()
    return [(a, b) for a, b in zip(first, stop, strict=True) if a < b]
