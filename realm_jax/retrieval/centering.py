"""Vectors less their mean, for searchers that round vectors or code them.

A query's inner products with vectors less any one vector are smaller by one number, the same for
all rows, so their order stays. Vectors of a trained embedder lie together, far from the origin, and
bfloat16 rounds what tells them apart away (benchmarks/RESULTS.md, Search).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from realm_jax.retrieval.mapped_array import temporary_array
from realm_jax.retrieval.searcher import read_array

_FILE = "mean.npy"
_BLOCK = 65_536  # rows at a time


@dataclass(frozen=True)
class Mean:
    """The mean of the vectors of an index."""

    vector: Float32[np.ndarray, "E"]

    @classmethod
    def of(cls, vectors: Float32[np.ndarray, "N E"]) -> "Mean":
        """Of vectors that may be memory-mapped."""
        total = np.zeros(vectors.shape[1])
        for start in range(0, len(vectors), _BLOCK):
            total += vectors[start : start + _BLOCK].sum(axis=0, dtype=np.float64)
        return cls((total / len(vectors)).astype(np.float32))

    @classmethod
    def load(cls, folder: Path, dims: int) -> "Mean":
        """What `save` wrote."""
        return cls(np.array(read_array(folder / _FILE, (dims,))))

    def save(self, folder: Path) -> None:
        """Writes it beside a searcher's other files."""
        np.save(folder / _FILE, self.vector)

    def subtracted(self, vectors: Float32[np.ndarray, "N E"]) -> Float32[np.ndarray, "N E"]:
        """Another array of all rows less their mean; in a file, if `vectors` are in one."""
        mapped = isinstance(vectors, np.memmap)
        new = temporary_array(vectors.shape) if mapped else np.empty_like(vectors)
        for start in range(0, len(vectors), _BLOCK):
            new[start : start + _BLOCK] = vectors[start : start + _BLOCK] - self.vector
        return new

    def true_scores(
        self, queries: Float32[np.ndarray, "B E"], scores: Float32[np.ndarray, "B K"]
    ) -> Float32[np.ndarray, "B K"]:
        """Inner products with the vectors, from those with the vectors less their mean."""
        return scores + (queries @ self.vector)[:, None]
