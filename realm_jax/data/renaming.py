"""Answers made strange, so that a reader must read them (after entity substitution in QA).

A small corpus is quicker learnt by heart than read. Here the pieces of an answer become other
pieces, drawn at random, in the target and in the passage alike: what the passage says stays
consistent, and what the model may remember is of no use.
"""

import numpy as np
from jaxtyping import Bool

from realm_jax.data.masked_text import MaskedText
from realm_jax.data.rows import Rows
from realm_jax.text.wordpiece import WordPieces


def rename_answers(
    joint: Rows,
    text: MaskedText,
    chosen: Bool[np.ndarray, "B"],
    words: WordPieces,
    rng: np.random.Generator,
) -> tuple[Rows, MaskedText]:
    """Renames the answers of the chosen rows.

    Args:
      joint: [B, J], each sentence beside one passage.
      text: the B sentences; their targets are renamed with the passage.
      chosen: which rows.
      words: the vocabulary; special pieces are never drawn.
      rng: of this batch.
    """
    ids, targets = joint.ids.copy(), text.targets.copy()
    ordinary = np.setdiff1d(np.arange(words.size, dtype=np.int32), words.special)
    for row in np.flatnonzero(chosen):
        real = text.weights[row] > 0
        pieces = np.unique(targets[row, real])
        others = rng.choice(ordinary, len(pieces))
        body = joint.segments[row] == 1
        ids[row, body] = _renamed(ids[row, body], pieces, others)
        targets[row, real] = _renamed(targets[row, real], pieces, others)
    return joint._replace(ids=ids), text._replace(targets=targets)


def _renamed(ids: np.ndarray, pieces: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Each of the sorted `pieces` in `ids` becomes its other."""
    place = np.minimum(np.searchsorted(pieces, ids), len(pieces) - 1)
    return np.where(pieces[place] == ids, others[place], ids)
