"""Masked sentences whose hidden words a candidate has, chosen among several that were drawn."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Bool, Int64

from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedText
from realm_jax.retrieval.retriever import Candidates


def first_answered(
    drawn: Sequence[tuple[MaskedText, Candidates]], store: PassageStore
) -> tuple[MaskedText, Candidates]:
    """Of each batch row, the first draw whose hidden words a candidate has; else the first draw.

    Most hidden words are in no candidate. The reader can then copy them from none, so its
    likelihoods say little about which candidate is relevant.

    Args:
      drawn: batches of the same size with their candidates.
      store: the knowledge corpus Z of the candidates.
    """
    if len(drawn) == 1:
        return drawn[0]
    right = np.stack([_answered(text, *candidates, store) for text, candidates in drawn])
    draw, row = right.argmax(0), np.arange(right.shape[1])
    chosen: tuple[MaskedText, Candidates] = jax.tree.map(
        lambda *parts: np.stack(parts)[draw, row], *drawn
    )
    return chosen


def _answered(
    text: MaskedText,
    ids: Int64[np.ndarray, "B K"],
    valid: Bool[np.ndarray, "B K"],
    store: PassageStore,
) -> Bool[np.ndarray, "B"]:
    """Whether the body of a candidate has every run of hidden word pieces.

    The last word of a run may be longer in the body.
    """
    runs = map(_runs, text.positions, text.targets, text.weights)
    found = [
        any(
            _has_all(store.body_ids(passage), hidden) for passage in row[kept & (row >= 0)].tolist()
        )
        for hidden, row, kept in zip(runs, ids, valid, strict=True)
    ]
    return np.array(found, bool)


def _runs(positions: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> list[bytes]:
    """The hidden word pieces that are next to each other, as bytes."""
    count = int((weights > 0).sum())
    cuts = np.flatnonzero(np.diff(positions[:count]) != 1) + 1
    return [run.astype(np.int32).tobytes() for run in np.split(targets[:count], cuts)]


def _has_all(pieces: np.ndarray, runs: list[bytes]) -> bool:
    body = pieces.astype(np.int32).tobytes()
    return all(_has(body, run) for run in runs)


def _has(body: bytes, run: bytes) -> bool:
    """Whether the bytes occur where a word piece begins."""
    at = body.find(run)
    while at % 4 and at >= 0:
        at = body.find(run, at + 1)
    return at >= 0
