"""Exact search in numpy: every inner product, block by block, so memory stays bounded."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32

from realm_jax.retrieval.searcher import (
    check_queries,
    read_array,
    read_description,
    write_description,
)

VECTORS = "vectors.npy"
BLOCK = 16_384  # rows scored at a time


class ExactSearcher:
    """Scores all rows; the yardstick for the others. `vectors` may be memory-mapped."""

    kind = "exact"

    def __init__(self, vectors: Float32[np.ndarray, "N E"]):
        self.vectors = vectors
        self.size, self.dims = vectors.shape
        self.bytes = vectors.nbytes

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; ties go to the lower row."""
        check_queries(self, queries, k)
        rows = np.empty((len(queries), 0), np.int32)
        scores = np.empty((len(queries), 0), np.float32)
        for start in range(0, self.size, BLOCK):
            block = queries @ self.vectors[start : start + BLOCK].T
            new = np.arange(start, start + block.shape[1], dtype=np.int32)
            scores = np.concatenate([scores, block], axis=1)
            rows = np.concatenate([rows, np.broadcast_to(new, block.shape)], axis=1)
            if scores.shape[1] > k:
                keep = _best(scores, k)
                scores = scores[keep].reshape(len(queries), k)
                rows = rows[keep].reshape(len(queries), k)
        order = np.argsort(-scores, axis=1, kind="stable")  # rows ascend, so ties stay in order
        return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)

    def widen(self) -> bool:
        """False: all rows are looked at."""
        return False

    def save(self, folder: Path) -> None:
        """Writes the vectors and their description."""
        np.save(folder / VECTORS, self.vectors)
        write_description(folder, self)

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any = None, seed: int = 0
    ) -> "ExactSearcher":
        """There is nothing to build."""
        return cls(vectors)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "ExactSearcher":
        """Opens the vectors memory-mapped."""
        return cls(load_vectors(folder))


def load_vectors(folder: Path) -> Float32[np.ndarray, "N E"]:
    """The vectors of a folder, memory-mapped, with the shape that its description promises."""
    description = read_description(folder)
    return read_array(folder / VECTORS, (description["size"], description["dims"]))


def _best(scores: Float32[np.ndarray, "B C"], k: int) -> Bool[np.ndarray, "B C"]:
    """Marks the `k` largest of each row; among equals at the edge, the leftmost."""
    edge = np.partition(scores, -k, axis=1)[:, -k, None]
    above, equal = scores > edge, scores == edge
    room = k - above.sum(axis=1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=1) <= room))
