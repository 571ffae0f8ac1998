"""Packed streams whose rows are whole tiles, as the fused kinds of attention need them.

On a TPU a row of 97 pieces is stored as one of 112. Only the integers of the input are padded; the
encoder then runs on the longer streams.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

TILE = 16  # pieces of a tile of bfloat16 in a TPU's memory

# Rows of one width in G streams: token ids, mask (True on real tokens), segments; each [G, n, w].
Block = tuple[Int[Array, "G _ _"], Bool[Array, "G _ _"], Int[Array, "G _ _"]]


class WholeTiles:
    """The streams of some blocks, and where their positions are in streams of whole tiles.

    Args:
      blocks: rows grouped by width.
      tile: widths become multiples of it; 1 changes nothing.
    """

    def __init__(self, blocks: Sequence[Block], tile: int):
        shapes = [ids.shape[1:] for ids, _, _ in blocks]
        self._widths = [-(-width // tile) * tile for _, width in shapes]
        self._unchanged = all(
            width == new for (_, width), new in zip(shapes, self._widths, strict=True)
        )
        found, start = [], 0
        for (rows, width), new in zip(shapes, self._widths, strict=True):
            found.append(start + (new * np.arange(rows)[:, None] + np.arange(width)).ravel())
            start += rows * new
        self._length, self._positions = start, np.concatenate(found)  # old position -> new one

    def blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks with padding at the end of each row."""
        pads = [
            ((0, 0), (0, 0), (0, new - ids.shape[2]))
            for (ids, _, _), new in zip(blocks, self._widths, strict=True)
        ]
        return [
            (jnp.pad(ids, pad), jnp.pad(mask, pad), jnp.pad(segments, pad))
            for (ids, mask, segments), pad in zip(blocks, pads, strict=True)
        ]

    def positions(self, positions: Int[Array, "G N"]) -> Int[Array, "G N"]:
        """Positions of the streams, in streams of whole tiles."""
        return jnp.asarray(self._positions, positions.dtype)[positions]

    def padded(self, x: Float[Array, "G T H"]) -> Float[Array, "G _ H"]:
        """Vectors of the streams, with zeros on padding."""
        if self._unchanged:
            return x
        empty = jnp.zeros((len(x), self._length, x.shape[2]), x.dtype)
        return empty.at[:, self._positions].set(x)

    def cut(self, x: Float[Array, "G _ H"]) -> Float[Array, "G T H"]:
        """The inverse of `padded`."""
        return x if self._unchanged else x[:, self._positions]
