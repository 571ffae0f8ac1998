"""Several arrays, read as if they were one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Integer


class Concatenated:
    """Arrays after one another along the first axis, without a copy.

    Reading supports one index, an array of indices, and slices.

    Args:
      arrays: of one dtype and one row shape; may be memory-mapped. At least one.

    Attributes:
      starts: Int64 [arrays + 1], the position of the first row of each, and the end.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self._arrays = list(arrays)
        self.dtype = self._arrays[0].dtype
        self.starts = np.cumsum([0, *map(len, self._arrays)])
        self.shape = (int(self.starts[-1]), *self._arrays[0].shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: Any) -> np.ndarray:
        if isinstance(numbers, slice):
            return self._slice(*numbers.indices(len(self)))
        at = np.asarray(numbers)
        if at.size and not (at.min() >= 0 and at.max() < len(self)):
            raise IndexError(f"{at.min()} to {at.max()} of {len(self)}")
        return self._take(at)

    def _slice(self, start: int, stop: int, step: int) -> np.ndarray:
        if step != 1:
            return self._take(np.arange(start, stop, step))
        part = int(np.searchsorted(self.starts[1:-1], start, "right"))
        if stop <= self.starts[part + 1]:
            begin = int(self.starts[part])
            return self._arrays[part][start - begin : max(start, stop) - begin]
        return self._take(np.arange(start, stop))

    def _take(self, at: Integer[np.ndarray, "*some"]) -> np.ndarray:
        out = np.empty((*at.shape, *self.shape[1:]), self.dtype)
        part = np.searchsorted(self.starts[1:-1], at, "right")
        for number, array in enumerate(self._arrays):
            chosen = part == number
            if chosen.all():  # the usual case: a corpus that has grown little
                return np.asarray(array[at - self.starts[number]])
            out[chosen] = array[at[chosen] - self.starts[number]]
        return out
