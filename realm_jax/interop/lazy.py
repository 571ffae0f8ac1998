"""Arrays in a file of somebody else's, read when asked for: some of them are gigabytes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Lazy:
    """An array that is still in its file.

    Attributes:
      shape: known without reading.
      read: gives the array, in the dtype of the file.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def transposed(self) -> "Lazy":
        """The array with its axes turned around."""
        return Lazy(self.shape[::-1], lambda: self.read().T)
