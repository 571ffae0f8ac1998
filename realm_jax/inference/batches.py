"""Batches of few sizes: a program is compiled for each size that it meets."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

SIZES = (1, 8, 64)
Item = TypeVar("Item")


def batches(items: Sequence[Item]) -> Iterator[tuple[list[Item], int]]:
    """Runs of items, the last one repeated until a size of `SIZES` is full; how many are real."""
    for start in range(0, len(items), SIZES[-1]):
        some = list(items[start : start + SIZES[-1]])
        size = next(size for size in SIZES if size >= len(some))
        yield some + some[-1:] * (size - len(some)), len(some)
