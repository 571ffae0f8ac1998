"""Exact search in numpy: all inner products, computed in blocks of rows to bound the memory."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32

from realm_jax.retrieval.searcher import check_queries
from realm_jax.retrieval.searcher_files import read_array, read_description, write_description

VECTORS = "vectors.npy"
BLOCK = 16_384  # rows scored at a time
GROUP = 1024  # queries searched at a time

_Hits = tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]


class ExactSearcher:
    """Scores all rows, so its recall is 1; other searchers are measured against it.

    Args:
      vectors: may be memory-mapped.
    """

    kind = "exact"

    def __init__(self, vectors: Float32[np.ndarray, "N E"]):
        self.vectors = vectors
        self.size, self.dims = vectors.shape
        self.bytes = vectors.nbytes

    def search(self, queries: Float32[np.ndarray, "B E"], k: int) -> _Hits:
        """See `Searcher.search`; ties go to the lower row."""
        check_queries(self, queries, k)
        groups = range(0, max(1, len(queries)), GROUP)
        found = (self._search(queries[start : start + GROUP], k) for start in groups)
        rows, scores = zip(*found, strict=True)
        return np.concatenate(rows), np.concatenate(scores)

    def _search(self, queries: Float32[np.ndarray, "B E"], k: int) -> _Hits:
        rows = np.empty((len(queries), 0), np.int32)
        scores = np.empty((len(queries), 0), np.float32)
        for start in range(0, self.size, BLOCK):
            block = queries @ self.vectors[start : start + BLOCK].T
            if scores.shape[1] == k:  # few of the later rows are better than the worst hit
                columns, block = _better(block, scores.min(axis=1))
            else:
                columns = np.broadcast_to(np.arange(block.shape[1], dtype=np.int32), block.shape)
            scores = np.concatenate([scores, block], axis=1)
            rows = np.concatenate([rows, columns + np.int32(start)], axis=1)
            if scores.shape[1] > k:
                keep = _top_k_mask(scores, k)
                scores = scores[keep].reshape(len(queries), k)
                rows = rows[keep].reshape(len(queries), k)
        order = np.argsort(-scores, axis=1, kind="stable")  # in a tie the lower row is first
        return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)

    def widen(self) -> bool:
        """Returns False: all rows are scored already."""
        return False

    def save(self, folder: Path) -> None:
        """Writes the vectors and `searcher.json`."""
        np.save(folder / VECTORS, self.vectors)
        write_description(folder, self)

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any = None, seed: int = 0
    ) -> "ExactSearcher":
        """Wraps the vectors; nothing is trained."""
        return cls(vectors)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "ExactSearcher":
        """Memory-maps the saved vectors."""
        return cls(load_vectors(folder))


def load_vectors(folder: Path) -> Float32[np.ndarray, "N E"]:
    """Memory-maps the vectors of a saved searcher.

    Raises:
      DamageError: their shape is not the one in `searcher.json`.
    """
    description = read_description(folder)
    return read_array(folder / VECTORS, (description["size"], description["dims"]))


def _better(
    scores: Float32[np.ndarray, "B C"], least: Float32[np.ndarray, "B"]
) -> tuple[Int32[np.ndarray, "B M"], Float32[np.ndarray, "B M"]]:
    """Columns and values of the scores above `least`, filled up with -inf at the end."""
    query, column = np.nonzero(scores > least[:, None])
    counts = np.bincount(query, minlength=len(scores))
    position = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.zeros((len(scores), counts.max(initial=0)), np.int32)
    values = np.full(columns.shape, -np.inf, np.float32)
    columns[query, position], values[query, position] = column, scores[query, column]
    return columns, values


def _top_k_mask(scores: Float32[np.ndarray, "B C"], k: int) -> Bool[np.ndarray, "B C"]:
    """Mask of the `k` largest scores of each query; ties at the k-th score go to the left."""
    kth = np.partition(scores, -k, axis=1)[:, -k, None]
    above, equal = scores > kth, scores == kth
    free = k - above.sum(axis=1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=1) <= free))
