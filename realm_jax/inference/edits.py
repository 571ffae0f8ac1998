"""Edits of passages in memory, on top of a published index and its corpus.

The published files are not modified. `EditedStore` and `EditedIndex` are immutable views; each
edit creates new ones. Index row i of an `EditedIndex` is passage id i. An edited passage keeps its
id; an added one gets the next free id.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float16, Float32, Int32, Int64, Integer

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import Bounds, PassageStore
from realm_jax.retrieval.bm25 import Bm25, Ranked, best, passage_text
from realm_jax.retrieval.bm25_words import Texts
from realm_jax.retrieval.searcher import check_queries


@dataclass(frozen=True)
class WrittenPassage:
    """A passage written by a user, in word pieces; `vector` is None until it is embedded."""

    title: str
    body: str
    title_ids: Int32[np.ndarray, "t"]
    body_ids: Int32[np.ndarray, "b"]
    body_offsets: Int32[np.ndarray, "b 2"]
    vector: Float32[np.ndarray, "E"] | None = None


class EditedStore(PassageStore):
    """A passage store with some passages replaced and some added.

    `corpus_hash` is that of the base. A written passage counts as one sentence.

    Attributes:
      written: added and edited passages by id.
    """

    def __init__(self, base: PassageStore, written: Mapping[int, WrittenPassage]):
        base.vocabulary  # noqa: B018 - loads it once, for all views
        vars(self).update(vars(base))  # shares the memory maps
        self._base, self.written = base, dict(written)
        self._ids = np.array(sorted(written), np.int64)
        in_order = [self.written[i] for i in self._ids.tolist()]
        parts = [part for w in in_order for part in (w.title_ids, w.body_ids)]
        ends = len(base.flat) + np.cumsum([0] + [len(part) for part in parts])
        self._bounds = (
            ends[:-1].reshape(-1, 2),
            ends[1:].reshape(-1, 2),
        )  # starts and stops of titles and bodies
        self.flat: Any = _Overlaid(base.flat, np.arange(len(base.flat), ends[-1]), _joined(parts))

    def __len__(self) -> int:
        return max(len(self._base), int(self._ids.max(initial=-1)) + 1)

    def title(self, i: int) -> str:
        """See `PassageStore.title`."""
        return self.written[i].title if i in self.written else super().title(i)

    def body(self, i: int) -> str:
        """See `PassageStore.body`."""
        return self.written[i].body if i in self.written else super().body(i)

    def body_offsets(self, i: int) -> Int32[np.ndarray, "n 2"]:
        """See `PassageStore.body_offsets`."""
        return self.written[i].body_offsets if i in self.written else super().body_offsets(i)

    def sentences(self, i: int) -> Int32[np.ndarray, "bounds"]:
        """See `PassageStore.sentences`."""
        if i not in self.written:
            return super().sentences(i)
        return np.array([0, len(self.written[i].body_ids)], np.int32)

    def document(self, i: int) -> int:
        """The document of passage `i`; -1 for an added passage, whose `document_id` is ""."""
        return super().document(i) if i < len(self._base) else -1

    def lengths(self) -> Int32[np.ndarray, "N"]:
        """See `PassageStore.lengths`; 3 for ids that are not in use."""
        out = np.full(len(self), 3, np.int32)
        out[: len(self._base)] = super().lengths()
        for i, written in self.written.items():
            out[i] = len(written.title_ids) + len(written.body_ids) + 3
        return out

    def title_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """See `PassageStore.title_bounds`."""
        return self._either(super().title_bounds, rows, 0)

    def body_bounds(self, rows: Integer[np.ndarray, "R"]) -> Bounds:
        """See `PassageStore.body_bounds`."""
        return self._either(super().body_bounds, rows, 1)

    def _either(self, of_base: Any, rows: np.ndarray, part: int) -> Bounds:
        is_written, position = _find(self._ids, rows)
        start, stop = of_base(np.where(is_written, 0, rows))
        if not len(self._ids):
            return start, stop
        starts, stops = self._bounds
        return (
            np.where(is_written, starts[position, part], start),
            np.where(is_written, stops[position, part], stop),
        )

    def _title_range(self, i: int) -> tuple[int, int]:
        start, stop = self.title_bounds(np.array([i]))
        return int(start[0]), int(stop[0])

    def _body_range(self, i: int) -> tuple[int, int]:
        start, stop = self.body_bounds(np.array([i]))
        return int(start[0]), int(stop[0])


class EditedSearcher:
    """Searches the base without edited and removed passages, and the vectors of written ones.

    Its index rows are passage ids.
    """

    kind = "edited"

    def __init__(
        self, base: PublishedIndex, written: Mapping[int, WrittenPassage], removed: Set[int]
    ):
        changed = set(written) | removed
        self._base = base
        self._hidden = np.array([i for i in changed if i < base.searcher.size], np.int64)
        self._ids = np.array(sorted(written), np.int32)
        self._vectors = vectors_of(written, base.searcher.dims)
        self.size = base.searcher.size - len(self._hidden) + len(self._ids)
        self.dims = base.searcher.dims
        self.bytes = base.searcher.bytes + self._vectors.nbytes

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; exact if the base is."""
        check_queries(self, queries, k)
        searcher = self._base.searcher
        rows, scores = searcher.search(queries, min(k + len(self._hidden), searcher.size))
        ids = self._base.rows[rows]
        scores = np.where(np.isin(ids, self._hidden), -np.inf, scores)
        written = np.broadcast_to(self._ids, (len(queries), len(self._ids)))
        ids = np.concatenate([ids, written], axis=1).astype(np.int32)
        scores = np.concatenate([scores, queries @ self._vectors.T], axis=1).astype(np.float32)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(ids, best, 1), np.take_along_axis(scores, best, 1)


class EditedBm25:
    """Scores the base without edited and removed passages, and the texts of written ones.

    Written passages are scored with the document frequencies of the base.
    """

    def __init__(
        self, base: Bm25, written: Mapping[int, WrittenPassage], removed: Set[int] = frozenset()
    ):
        self._base = base
        self._hidden = np.array([i for i in removed if i < len(base)], np.int64)
        self._ids = np.array(sorted(written), np.int64)
        self._texts = Texts(passage_text(w.title, w.body) for _, w in sorted(written.items()))
        added = int((self._ids >= len(base)).sum())
        self._size = len(base) - len(self._hidden) + added

    def __len__(self) -> int:
        """Passages that can be found."""
        return self._size

    def scores(self, query: str) -> Float32[np.ndarray, "ids"]:
        """BM25 scores by passage id; -inf for ids that cannot be found."""
        count = max(len(self._base), int(self._ids.max(initial=-1)) + 1)
        scores = np.full(count, -np.inf, np.float32)
        scores[: len(self._base)] = self._base.scores(query)
        scores[self._hidden] = -np.inf
        scores[self._ids] = self._base.scores_of(query, self._texts)
        return scores

    def search(self, queries: Sequence[str], k: int) -> Ranked:
        """See `Bm25.search`."""
        return best([self.scores(query) for query in queries], min(k, len(self)))


@dataclass(frozen=True)
class EditedIndex:
    """A `retriever.Index` with edits; see `PublishedIndex` for the fields."""

    step: int
    searcher: EditedSearcher
    rows: Int64[np.ndarray, "N"]
    vectors: Any  # [N, E] by passage id; supports only indexing by an array of ids
    query_params: dict[str, Any]

    def vectors_of(self, passages: Int64[np.ndarray, "*some"]) -> Float16[np.ndarray, "*some E"]:
        """See `PublishedIndex.vectors_of`."""
        return self.vectors[passages]


def edited_index(
    base: PublishedIndex, written: Mapping[int, WrittenPassage], removed: Set[int]
) -> EditedIndex:
    """Returns `base` with `written` passages (each with a vector) and without `removed`."""
    ids = np.array(sorted(written), np.int64)
    count = max(base.searcher.size, int(ids.max(initial=-1)) + 1)
    replaced = vectors_of(written, base.searcher.dims)
    vectors = _Overlaid(base.vectors, ids, replaced, base.row_of)
    searcher = EditedSearcher(base, written, removed)
    return EditedIndex(base.step, searcher, np.arange(count), vectors, base.query_params)


def vectors_of(written: Mapping[int, WrittenPassage], dims: int) -> Float32[np.ndarray, "W E"]:
    """The vectors of written passages, in ascending order of ids."""
    vectors = [w.vector for _, w in sorted(written.items()) if w.vector is not None]
    return np.array(vectors, np.float32).reshape(-1, dims)


class _Overlaid:
    """An array in which some rows are replaced, for reading by index arrays or slices.

    Args:
      base: may be memory-mapped; never copied as a whole.
      ids: ascending; the rows that `replaced` replaces or adds.
      replaced: [len(ids), ...].
      row_of: maps ids to rows of `base`; None: they are equal.
    """

    def __init__(
        self,
        base: np.ndarray,
        ids: np.ndarray,
        replaced: np.ndarray,
        row_of: np.ndarray | None = None,
    ):
        self._base, self._ids, self._row_of = base, ids, row_of
        self._replaced = replaced.astype(base.dtype)

    def __len__(self) -> int:
        return max(len(self._base), int(self._ids.max(initial=-1)) + 1)

    def __getitem__(self, numbers: Any) -> np.ndarray:
        if isinstance(numbers, slice):
            numbers = np.arange(*numbers.indices(len(self)))
        is_replaced, position = _find(self._ids, numbers)
        rest = np.where(is_replaced, 0, numbers)
        out = np.array(self._base[rest if self._row_of is None else self._row_of[rest]])
        out[is_replaced] = self._replaced[position[is_replaced]]
        return out


def _find(ids: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which numbers are in the ascending `ids`, and their positions there."""
    if not len(ids):
        return np.zeros(np.shape(numbers), bool), np.zeros(np.shape(numbers), np.int64)
    at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
    return ids[at] == numbers, at


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int32), *parts])
