"""Subtracts the mean from the vectors of an index before they are rounded or quantised.

Subtracting one vector from all rows lowers all inner products with a query by the same number, so
the ranking does not change. The vectors of a trained embedder have a large common component, and
bfloat16 would round away the differences between them (benchmarks/RESULTS.md, Search).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from realm_jax.retrieval.mapped_array import temporary_array
from realm_jax.retrieval.searcher_files import read_array

_FILE = "mean.npy"
_BLOCK = 65_536  # rows processed at a time


@dataclass(frozen=True)
class Mean:
    """The mean of the vectors of an index."""

    vector: Float32[np.ndarray, "E"]

    @classmethod
    def of(cls, vectors: Float32[np.ndarray, "N E"]) -> "Mean":
        """Computes the mean in float64; `vectors` may be memory-mapped."""
        total = np.zeros(vectors.shape[1])
        for start in range(0, len(vectors), _BLOCK):
            total += vectors[start : start + _BLOCK].sum(axis=0, dtype=np.float64)
        return cls((total / len(vectors)).astype(np.float32))

    @classmethod
    def load(cls, folder: Path, dims: int) -> "Mean":
        """Reads the file that `save` wrote."""
        return cls(np.array(read_array(folder / _FILE, (dims,))))

    def save(self, folder: Path) -> None:
        """Writes the mean into the folder of a saved searcher."""
        np.save(folder / _FILE, self.vector)

    def subtract_from(self, vectors: Float32[np.ndarray, "N E"]) -> Float32[np.ndarray, "N E"]:
        """Returns a new array of centred vectors; memory-mapped if `vectors` is."""
        mapped = isinstance(vectors, np.memmap)
        new = temporary_array(vectors.shape) if mapped else np.empty_like(vectors)
        for start in range(0, len(vectors), _BLOCK):
            new[start : start + _BLOCK] = vectors[start : start + _BLOCK] - self.vector
        return new

    def add_to_scores(
        self, queries: Float32[np.ndarray, "B E"], scores: Float32[np.ndarray, "B K"]
    ) -> Float32[np.ndarray, "B K"]:
        """Turns inner products with centred vectors into those with the original vectors."""
        return scores + (queries @ self.vector)[:, None]
