"""Batches of few sizes, because a program is compiled for each size that it is called with."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from realm_jax.data.padding import padded_indices

SIZES = (1, 8, 64)
Item = TypeVar("Item")


def padded_batches(items: Sequence[Item]) -> Iterator[tuple[list[Item], int]]:
    """Yields batches of consecutive items, each padded to one of `SIZES` by repeating its items.

    With each batch comes the number of items that are not padding.
    """
    for start in range(0, len(items), SIZES[-1]):
        some = items[start : start + SIZES[-1]]
        size = next(size for size in SIZES if size >= len(some))
        yield [some[i] for i in padded_indices(len(some), size)], len(some)
