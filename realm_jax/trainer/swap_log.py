"""The swap log of a run: the training step from which each index was searched."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

SwapLog = list[tuple[int, int]]  # (first training step, index step), ascending


def index_step_at(swaps: SwapLog, step: int) -> int:
    """The step of the index that training step `step` searched."""
    return [index for first, index in swaps if first <= step][-1]


def staleness(swaps: Sequence[tuple[int, int | float]], steps: int) -> dict[str, float]:
    """Mean and maximum of (training step - snapshot step) over steps 0 to steps - 1.

    Args:
      swaps: (first training step, snapshot step of the index), ascending.
      steps: number of training steps.
    """
    ages = np.arange(max(steps, 1), dtype=np.float64)
    for (first, snapshot), (end, _) in pairwise([*swaps, (steps, 0)]):
        ages[first:end] -= snapshot
    return {"mean": float(ages.mean()), "max": float(ages.max())}
