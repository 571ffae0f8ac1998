"""A corpus of several generations, read as one passage store."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

from realm_jax.corpus.concatenated import Concatenated
from realm_jax.corpus.copy_rows import NO_PART
from realm_jax.corpus.document_ids import JoinedDocumentIds
from realm_jax.corpus.generation_files import (
    Layer,
    finished_generations,
    newest_generation,
    read_generation,
    read_layer,
)
from realm_jax.corpus.lineage import read_lineage
from realm_jax.corpus.store import Bounds, Part, PassageStore
from realm_jax.errors import DamageError, InputError

_NEVER = np.iinfo(np.int64).max  # ends the table of ids
_Opened = tuple[Layer | None, PassageStore | None]  # of a generation
_FIRST = 1  # the generation that lies in the folder of the corpus itself


def open_generation(
    path: str | Path, generation: int | None, before: PassageStore | None = None
) -> PassageStore:
    """See `PassageStore.open`; tries again if a compaction deletes the files that it opens.

    `before`: the corpus as it was opened earlier; layers that both have are not opened again.
    """
    while generation is None:
        newest = newest_generation(path)
        try:
            return _open(path, newest, before)
        except (DamageError, InputError, FileNotFoundError):
            if newest_generation(path) == newest:
                raise
    if generation not in (_FIRST, *finished_generations(path)):
        raise InputError(
            "no such generation of the corpus",
            where=path,
            expected=f"one up to {newest_generation(path)} whose files were not yet deleted",
            found=generation,
        )
    return _open(path, generation, before)


def _open(path: str | Path, generation: int, before: PassageStore | None) -> PassageStore:
    if generation == _FIRST:
        return PassageStore(path)
    if before is None:
        return LayeredStore(path, generation)
    lineage = read_lineage(path, generation, read_generation(path, generation))
    if before.lineage == lineage:
        return before
    is_same = before.lineage == lineage[: before.generation]  # or the corpus was built again
    return LayeredStore(path, generation, before if is_same else None)


def _opened_by(store: PassageStore | None) -> dict[int, _Opened]:
    if isinstance(store, LayeredStore):
        return store._opened
    return {} if store is None else {_FIRST: (None, store)}


def _open_layer(path: str | Path, generation: int) -> _Opened:
    """What a generation changes, and its passages if it has any; the first one is the corpus."""
    if generation == _FIRST:
        return None, PassageStore(path)
    layer = read_layer(path, generation)
    return layer, PassageStore(layer.part) if layer.part else None


class LayeredStore(PassageStore):
    """A corpus to which documents were added, or of which some were replaced or removed.

    A passage that was removed has an empty text and no word pieces; its id is not used again.
    `manifest` is that of the generation, with `vocabulary` and `passage_pieces` of the corpus.
    """

    def __init__(self, path: str | Path, generation: int, before: PassageStore | None = None):
        """See `open_generation`; `before` is an earlier generation of the same corpus."""
        self.path, self.generation = Path(path), generation
        manifest = read_generation(path, generation)
        known = _opened_by(before)
        self._opened = {one: known.get(one) or _open_layer(path, one) for one in manifest["layers"]}
        (first, base), *rest = self._opened.values()
        layers = [layer for layer, _ in rest if layer is not None]
        assert base is not None
        if first is not None:  # compacted: its rows are passage ids
            layers.insert(0, replace(first, part=None))
        settings = {name: base.manifest.get(name) for name in ("vocabulary", "passage_pieces")}
        self.manifest: dict[str, Any] = {**settings, **manifest}
        self.corpus_hash: str = manifest["corpus_hash"]
        self._size: int = manifest["size"]
        self._parts = [base, *(store for _, store in rest if store is not None)]
        self._ids, self._part, self._row = overlay(layers)
        # Read now: a compaction may delete the files while this generation is in use.
        self._lineage = read_lineage(path, generation, manifest)
        self._changes = [one.changes for one in layers]
        self.flat: Any = Concatenated([part.flat for part in self._parts])
        self.document_ids: Any = JoinedDocumentIds([part.document_ids for part in self._parts])
        if before is not None and "vocabulary" in vars(before):
            self.vocabulary = before.vocabulary  # the same file: do not read it again

    def __reduce__(self) -> tuple[Any, ...]:
        return (LayeredStore, (self.path, self.generation))

    def __len__(self) -> int:
        return self._size

    @property
    def lineage(self) -> tuple[str, ...]:
        """See `PassageStore.lineage`."""
        return self._lineage

    @property
    def layers(self) -> list[int]:
        """See `PassageStore.layers`."""
        return list(self.manifest["layers"])

    def summary(self) -> dict[str, Any]:
        """`passages`, `corpus_hash`, `generation` and `segments`."""
        counts = {"generation": self.generation, "segments": len(self.layers)}
        return super().summary() | counts

    def passages(self) -> int:
        """See `PassageStore.passages`."""
        return int(self.manifest["passages"])

    def is_live(self, ids: Integer[np.ndarray, "R"]) -> Bool[np.ndarray, "R"]:
        """See `PassageStore.is_live`."""
        inside = super().is_live(ids)
        return inside & (self._find(np.where(inside, ids, 0))[0] != NO_PART)

    def live_ids(self) -> Int64[np.ndarray, "L"]:
        """See `PassageStore.live_ids`."""
        live = np.ones(self._size, bool)
        live[self._ids[:-1]] = self._part[:-1] != NO_PART
        return np.flatnonzero(live)

    def changed_since(self, generation: int) -> Int64[np.ndarray, "C"]:
        """See `PassageStore.changed_since`."""
        later = [changes[changes[:, 1] > generation, 0] for changes in self._changes]
        return np.unique(np.concatenate(later))

    def _find(
        self, ids: Integer[np.ndarray, "R"]
    ) -> tuple[Int32[np.ndarray, "R"], Int64[np.ndarray, "R"]]:
        """The part of each passage, and its row there."""
        at = np.searchsorted(self._ids, ids)
        changed = self._ids[at] == ids
        return np.where(changed, self._part[at], 0), np.where(changed, self._row[at], ids)

    def _at(self, i: int) -> tuple[PassageStore | None, int]:
        """The part of passage `i`, None if it was removed, and its row there."""
        if not 0 <= i < self._size:
            raise IndexError(i)
        at = int(np.searchsorted(self._ids, i))
        if self._ids[at] != i:
            return self._parts[0], i
        part = int(self._part[at])
        return None if part == NO_PART else self._parts[part], int(self._row[at])

    def title(self, i: int) -> str:
        """See `PassageStore.title`."""
        part, row = self._at(i)
        return "" if part is None else part.title(row)

    def body(self, i: int) -> str:
        """See `PassageStore.body`."""
        part, row = self._at(i)
        return "" if part is None else part.body(row)

    def title_ids(self, i: int) -> Int32[np.ndarray, "n"]:
        """See `PassageStore.title_ids`."""
        part, row = self._at(i)
        return np.empty(0, np.int32) if part is None else part.title_ids(row)

    def body_ids(self, i: int) -> Int32[np.ndarray, "n"]:
        """See `PassageStore.body_ids`."""
        part, row = self._at(i)
        return np.empty(0, np.int32) if part is None else part.body_ids(row)

    def body_offsets(self, i: int) -> Int32[np.ndarray, "n 2"]:
        """See `PassageStore.body_offsets`."""
        part, row = self._at(i)
        return np.empty((0, 2), np.int32) if part is None else part.body_offsets(row)

    def sentences(self, i: int) -> Int32[np.ndarray, "bounds"]:
        """See `PassageStore.sentences`; `[0]` for a passage that was removed."""
        part, row = self._at(i)
        return np.zeros(1, np.int32) if part is None else part.sentences(row)

    def document(self, i: int) -> int:
        """See `PassageStore.document`; -1 for a passage that was removed."""
        part, row = self._at(i)
        if part is None:
            return -1
        document = part.document(row)
        first = self.document_ids.starts[self._parts.index(part)]
        return document if document < 0 else document + int(first)

    def lengths(self) -> Int32[np.ndarray, "N"]:
        """See `PassageStore.lengths`; 3 for a passage that was removed."""
        out = np.full(self._size, 3, np.int32)
        out[: len(self._parts[0])] = self._parts[0].lengths()
        ids = self._ids[:-1]
        (title, title_stop), (body, body_stop) = self.title_bounds(ids), self.body_bounds(ids)
        out[ids] = title_stop - title + body_stop - body + 3
        return out

    def sentence_lengths(self) -> Int32[np.ndarray, "S"]:
        """See `PassageStore.sentence_lengths`; in the order of the parts."""
        return np.concatenate([one.store.sentence_lengths_of(one.rows) for one in self.parts()])

    def parts(self) -> Iterator[Part]:
        """See `PassageStore.parts`."""
        base, *others = self._parts
        rows = np.ones(len(base), bool)
        rows[self._ids[self._ids < len(rows)]] = False
        yield Part(base, np.flatnonzero(rows), np.flatnonzero(rows))
        for number, part in enumerate(others, 1):
            chosen = self._part == number
            yield Part(part, self._row[chosen], self._ids[chosen])

    def title_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """See `PassageStore.title_bounds`."""
        return self._bounds(rows, [part.title_bounds for part in self._parts])

    def body_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """See `PassageStore.body_bounds`."""
        return self._bounds(rows, [part.body_bounds for part in self._parts])

    def _bounds(self, ids: Integer[np.ndarray, "R"], of_parts: Sequence[Any]) -> Bounds:
        ids = np.asarray(ids)
        parts, rows = self._find(ids)
        starts, stops = np.zeros(ids.shape, np.int64), np.zeros(ids.shape, np.int64)
        for number, of_part in enumerate(of_parts):
            chosen = parts == number
            if chosen.any():
                begin = self.flat.starts[number]
                start, stop = of_part(rows[chosen])
                starts[chosen], stops[chosen] = start + begin, stop + begin
        return starts, stops


def overlay(
    layers: Sequence[Layer],
) -> tuple[Int64[np.ndarray, "C"], Int32[np.ndarray, "C"], Int64[np.ndarray, "C"]]:
    """Ids that the layers change, ascending; the part and the row of each; the last id is _NEVER.

    Part 0 is the base; the others are numbered in the order of the layers that have one.
    """
    ids, parts, rows = [np.array([_NEVER])], [np.array([NO_PART])], [np.array([0])]
    number = 0
    for layer in layers:
        ids.append(layer.removed)
        parts.append(np.full(len(layer.removed), NO_PART))
        rows.append(np.zeros(len(layer.removed), np.int64))
        if layer.part is not None:
            number += 1
            ids.append(layer.ids)
            parts.append(np.full(len(layer.ids), number))
            rows.append(np.arange(len(layer.ids)))
    # The first occurrence in reverse is that of the newest layer.
    backwards = [np.concatenate(one[::-1]) for one in (ids, parts, rows)]
    found, first = np.unique(backwards[0], return_index=True)
    return found, backwards[1][first].astype(np.int32), backwards[2][first]
