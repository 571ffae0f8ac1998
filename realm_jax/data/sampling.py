"""Order of examples: batch n is a function of (seed, n), so a resumed run starts at n."""

import zlib
from functools import lru_cache

import numpy as np
from jaxtyping import Int64


def generator(seed: int, stream: str, *numbers: int) -> np.random.Generator:
    """A random generator for this seed, stream name and numbers; the same in every process."""
    key = [seed, zlib.crc32(stream.encode()), *numbers]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def example_ids(seed: int, step: int, batch: int, total: int) -> Int64[np.ndarray, "B"]:
    """Example numbers of batch `step`, below `total`; each number occurs once per epoch."""
    positions = np.arange(step * batch, (step + 1) * batch, dtype=np.int64)
    epochs, within = np.divmod(positions, total)
    chosen = np.empty_like(positions)
    for epoch in np.unique(epochs):
        of_epoch = epochs == epoch
        chosen[of_epoch] = _permutation(seed, int(epoch), total)[within[of_epoch]]
    return chosen


def rows_of_batch(size: int, batch_rows: Int64[np.ndarray, "R"] | None) -> Int64[np.ndarray, "R"]:
    """The batch rows that this process builds; None means all `size` rows (one process)."""
    return np.arange(size) if batch_rows is None else batch_rows


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, total: int) -> Int64[np.ndarray, "N"]:
    return generator(seed, "epoch", epoch).permutation(total)
