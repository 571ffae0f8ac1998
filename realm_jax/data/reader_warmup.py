"""Warm-up batches for the reader: a masked sentence and the passage that states it.

The paper has no such stage. A reader trained from random weights needs it to learn copying.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data import sampling
from realm_jax.data.entity_permutation import RarePieces, permute_rows
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows

_NEIGHBOURS = (-2, -1, 1, 2)  # offsets among passages that exist; mostly the same document
# Masking in the copying phase: many masked tokens, all of which occur in the passage.
_COPYING_MASKS = {"scheme": "random_token", "rate": 0.2}
_COPYING = {"neighbour_share": 0.0, "null_share": 0.0, "hidden_mask_share": 0.0}


class ReaderWarmupBatch(NamedTuple):
    """Masked sentences with one passage each."""

    joint: Rows  # [B, J]
    text: MaskedText
    gold: Bool[Any, "B J W"]  # entry (i, w): tokens i .. i + w of the body equal the masked span
    one_span: Bool[Any, "B"]  # True if the masked tokens are contiguous and at most W


class ReaderWarmupSource:
    """Pairs each masked sentence with the passage known to state it, or else with its source.

    Some rows differ; each share is a setting under `stages.reader`:

    - `neighbour_share`: the passage is a neighbour. Negative passages keep the reader from
      trusting every passage, which would drive p(null) to 1 in REALM.
    - `null_share`: the null passage. Otherwise p(y|null,x) is untrained at first, and retrieval
      utility is overestimated.
    - `permuted_share`: rare pieces are permuted (`data.entity_permutation`), so facts cannot be
      memorised.
    - `hidden_mask_share`: [MASK] tokens are hidden from attention, because questions contain none.
      These rows train only the span loss.

    The first `copying_share` of the steps is the copying phase: random tokens are masked and each
    sentence is paired with its source. With salient spans only, a randomly initialised reader does
    not learn to copy.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, text: MaskedTextSource):
        self._store, self._lengths, self._seed = store, config.lengths, config.seed
        stage = config.stages.reader
        self._copying_steps = round(stage.copying_share * stage.steps)
        copying = ConfigDict({**stage.to_dict(), **_COPYING})
        masked = text.masked_by(ConfigDict({**config.masking.to_dict(), **_COPYING_MASKS}))
        self._parts = {
            True: (masked, copying),
            False: (text, stage),
        }
        self._rare, self._live = RarePieces(store), store.live_ids()

    def batch(
        self, step: int, size: int, batch_rows: Int64[np.ndarray, "R"] | None = None
    ) -> ReaderWarmupBatch:
        """The batch of one training step; only the rows `batch_rows` if it is given."""
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        copying = step < self._copying_steps
        source, stage = self._parts[copying]
        text = source.batch(step, size, batch_rows)
        rng = sampling.generator(self._seed, "reader", step)
        chance = rng.random(size)[batch_rows]
        offset = rng.choice(_NEIGHBOURS, size)[batch_rows]
        first, second = (text.source, text.evidence) if copying else (text.evidence, text.source)
        passages = np.where(first < 0, second, first)[:, None]
        negative = chance < stage.neighbour_share
        place = np.searchsorted(self._live, passages[negative], side="right") - 1
        passages[negative] = self._live[(place + offset[negative, None]) % len(self._live)]
        passages[chance >= 1 - stage.null_share] = NULL_PASSAGE
        joint = joint_rows(text.queries, self._store, passages, self._lengths.joint)
        joint = Rows(*(part[:, 0] for part in joint))
        table = self._rare.permutation(rng)
        chosen = (rng.random(size) < stage.permuted_share)[batch_rows]
        joint = joint._replace(ids=permute_rows(joint.ids, table, chosen))
        text = text._replace(targets=permute_rows(text.targets, table, chosen))
        hide_mask = (rng.random(size) < stage.hidden_mask_share)[batch_rows]
        mask_tokens = joint.ids == self._store.vocabulary.mask
        joint = joint._replace(mask=joint.mask & ~(hide_mask[:, None] & mask_tokens))
        masked = (text.queries.ids == self._store.vocabulary.mask).sum(-1)
        gold, one_span = _masked_spans(joint, text, masked, self._lengths.answer)
        weights = np.where(hide_mask[:, None], np.float32(0), text.weights)
        return ReaderWarmupBatch(joint, text._replace(weights=weights), gold, one_span)


def _masked_spans(
    joint: Rows, text: MaskedText, masked: Int[np.ndarray, "B"], widest: int
) -> tuple[np.ndarray, np.ndarray]:
    """The fields `gold` and `one_span` of a batch.

    `masked`: number of [MASK] in each query. A span of more than M pieces has fewer targets.
    """
    real = text.weights > 0
    counts = real.sum(-1)
    last = np.take_along_axis(text.positions, np.maximum(counts - 1, 0)[:, None], axis=1)[:, 0]
    one_span = (counts > 0) & (last - text.positions[:, 0] == counts - 1) & (counts <= widest)
    one_span &= masked <= counts
    answers = [
        [pieces[used]] if whole else []
        for pieces, used, whole in zip(text.targets, real, one_span, strict=True)
    ]
    rows = Rows(*(part[:, None] for part in joint))
    return matching_spans(rows, answers, widest)[:, 0], one_span


def matching_spans(
    joint: Rows, answers: list[list[np.ndarray]], widest: int
) -> Bool[np.ndarray, "B R J W"]:
    """Occurrences of the answers in each passage body, indexed by (first token, width - 1).

    Args:
      joint: rows [B, R, J].
      answers: for each of the B queries, its answers as token ids.
      widest: W, in tokens; longer answers are not gold.
    """
    size, hits, length = joint.ids.shape
    gold = np.zeros((size, hits, length, widest), bool)
    body = joint.mask & (joint.segments == 1)
    for row, accepted in enumerate(answers):
        for pieces in accepted:
            count = len(pieces)
            if not 1 <= count <= min(widest, length):
                continue
            windows = np.lib.stride_tricks.sliding_window_view(joint.ids[row], count, axis=-1)
            inside = np.lib.stride_tricks.sliding_window_view(body[row], count, axis=-1)
            found = (windows == pieces).all(-1) & inside.all(-1)
            gold[row, :, : found.shape[-1], count - 1] |= found
    return gold
