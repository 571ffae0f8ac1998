"""Right or wrong for each of thousands of questions, in a JSON record of moderate size."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64


def bits(values: Sequence[bool]) -> str:
    """The number of values, and the values as hexadecimal digits, four to a digit."""
    return f"{len(values)}:{np.packbits(np.array(values, bool)).tobytes().hex()}"


def from_bits(text: str) -> Float64[np.ndarray, "n"]:
    """What `bits` was given, as 0.0 and 1.0."""
    count, _, digits = text.partition(":")
    unpacked = np.unpackbits(np.frombuffer(bytes.fromhex(digits), np.uint8))
    return unpacked[: int(count)].astype(np.float64)
