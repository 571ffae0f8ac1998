"""The spans of a corpus of several generations."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from realm_jax.corpus.copy_rows import NO_PART
from realm_jax.corpus.spans import FOLDER, SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.storage.layout import MANIFEST


class LayeredSpans(SpanStore):
    """Spans of an earlier generation, and those of the passages that were written since.

    A passage that was written by a corpus without marks, or was removed, has no spans. See
    `SpanStore` for the attributes. `source` and `evidence` of passages that changed are -1.
    """

    def __init__(self, path: str | Path, store: PassageStore):
        """See `SpanStore.open`."""
        super().__init__(path, store)
        changed = store.changed_since(store.generation_of(self.corpus_hash))
        self._later: list[SpanStore] = []
        later, rows = np.full(len(changed), NO_PART), np.zeros(len(changed), np.int64)
        for part in store.parts():
            is_changed = np.isin(part.ids, changed)
            spans = spans_of_part(part.store) if is_changed.any() else None
            if spans is not None:
                at = np.searchsorted(changed, part.ids[is_changed])
                later[at], rows[at] = len(self._later), part.rows[is_changed]
                self._later.append(spans)
        self._changed, self._part, self._row = changed, later, rows
        counts = [len(self.of(i)) for i in changed.tolist()]
        unchanged = np.setdiff1d(self.rows, changed)
        self.rows = np.union1d(unchanged, changed[np.array(counts, np.int64) > 0])
        if self.source is not None and self.knowledge_hash == self.corpus_hash:
            self.source = np.arange(len(store))
        else:
            self.source = self._extended(self.source)
        self.evidence = self._extended(self.evidence)

    def __reduce__(self) -> tuple[Any, ...]:
        return (LayeredSpans, (self.path, self._store))

    def __len__(self) -> int:
        return len(self._store)

    def of(self, i: int) -> Int32[np.ndarray, "s 2"]:
        """See `SpanStore.of`."""
        at = int(np.searchsorted(self._changed, i))
        if at == len(self._changed) or self._changed[at] != i:
            return super().of(i)
        part = int(self._part[at])
        if part == NO_PART:
            return np.empty((0, 2), np.int32)
        return self._later[part].of(int(self._row[at]))

    def _extended(self, ids: Int64[np.ndarray, "n"] | None) -> Int64[np.ndarray, "N"] | None:
        if ids is None:
            return None
        extended = np.full(len(self), -1, np.int64)
        extended[: len(ids)] = ids
        extended[self._changed] = -1
        return extended


def spans_of_part(part: PassageStore) -> SpanStore | None:
    """The marks in a folder of passages; None if it has none."""
    return SpanStore(part.path / FOLDER, part) if (part.path / FOLDER / MANIFEST).exists() else None


def copy_spans(
    folder: Path,
    parts: list[PassageStore],
    part: Int32[np.ndarray, "R"],
    row: Int64[np.ndarray, "R"],
) -> None:
    """Marks passages that were copied; see `copy_rows`.

    Args:
      folder: the copy, finished; its marks are written into it.
      parts: where the passages are.
      part: index in `parts` of each passage.
      row: of each passage in its part.
    """
    of_parts = [spans_of_part(one) for one in parts]

    def spans_of(number: int, at: int) -> list[tuple[int, int]]:
        found = of_parts[number] if number != NO_PART else None
        return [] if found is None else [(start, stop) for start, stop in found.of(at).tolist()]

    if any(one is not None for one in of_parts):
        marks = (spans_of(*one) for one in zip(part.tolist(), row.tolist(), strict=True))
        SpanStore.write(None, PassageStore(folder), marks)
