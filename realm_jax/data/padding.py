"""Batches of a fixed size: jax compiles a program once for each shape that it is called with."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64


def padded_indices(count: int, size: int) -> Int64[np.ndarray, "size"]:
    """Returns `size` indices below `count`: 0, 1, ..., then from 0 again.

    The rows after the first `count` are padding: computed, and dropped by the caller.

    Args:
      count: number of real rows, 1 to `size`.
      size: number of rows of the batch.
    """
    return np.arange(size, dtype=np.int64) % count


def fixed_size_batches(count: int, size: int) -> Iterator[tuple[Int64[np.ndarray, "size"], int]]:
    """Yields the indices of each batch of `count` rows, and how many of them are real.

    The last batch is padded with `padded_indices`.

    Args:
      count: number of rows.
      size: rows of each batch.
    """
    for start in range(0, count, size):
        real = min(size, count - start)
        yield start + padded_indices(real, size), real
