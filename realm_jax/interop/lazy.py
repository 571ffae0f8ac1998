"""Arrays that are read from a file on demand, because files can have gigabytes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LazyArray:
    """An array in a file.

    Attributes:
      shape: known without reading the array.
      read: reads the array in the dtype of the file.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def transposed(self) -> "LazyArray":
        """The array with reversed axes."""
        return LazyArray(self.shape[::-1], lambda: self.read().T)
