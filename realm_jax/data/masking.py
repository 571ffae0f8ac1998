"""Which pieces of a sentence are hidden: salient spans (REALM 3.4) and the rows of Table 2."""

import numpy as np
from jaxtyping import Int32

from realm_jax.errors import ConfigError

_SPAN_STOP = 0.2  # SpanBERT: span lengths are geometric with this chance to stop ...
_SPAN_MOST = 10  # ... and at most this long


def salient_span(
    spans: Int32[np.ndarray, "S 2"], rng: np.random.Generator
) -> Int32[np.ndarray, "m"]:
    """All pieces of one span, drawn evenly; no 80/10/10, no other piece."""
    start, stop = spans[rng.integers(len(spans))]
    return np.arange(start, stop, dtype=np.int32)


def random_token(size: int, rate: float, rng: np.random.Generator) -> Int32[np.ndarray, "m"]:
    """Each piece alike, `rate` of them and at least one (BERT, without 80/10/10)."""
    count = max(1, round(rate * size))
    return np.sort(rng.choice(size, count, replace=False)).astype(np.int32)


def random_span(size: int, rate: float, rng: np.random.Generator) -> Int32[np.ndarray, "m"]:
    """Spans of geometric length at random places until `rate` of the pieces are hidden."""
    budget = max(1, round(rate * size))
    hidden = np.zeros(size, bool)
    while hidden.sum() < budget:
        length = min(rng.geometric(_SPAN_STOP), _SPAN_MOST, budget - hidden.sum())
        start = rng.integers(size - length + 1)
        hidden[start : start + length] = True
    return np.flatnonzero(hidden).astype(np.int32)


def positions(
    scheme: str,
    size: int,
    spans: Int32[np.ndarray, "S 2"],
    rate: float,
    rng: np.random.Generator,
) -> Int32[np.ndarray, "m"]:
    """Pieces to hide in a sentence of `size` pieces, ascending."""
    if scheme == "salient_span":
        return salient_span(spans, rng)
    if scheme == "random_token":
        return random_token(size, rate, rng)
    if scheme == "random_span":
        return random_span(size, rate, rng)
    raise ConfigError("unknown masking scheme", where="config.masking.scheme", found=scheme)
