"""Batches that teach a reader to read: a masked sentence beside the passage that states it."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data import sampling
from realm_jax.data.entity_permutation import RarePieces, permute_rows
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows

_NEIGHBOURS = (-2, -1, 1, 2)  # passages away: mostly of the same document
# How the first steps hide: copying is learnt soonest from many pieces that the passage always says.
_COPYING_MASKS = {"scheme": "random_token", "rate": 0.2}
_COPYING = {"neighbour_share": 0.0, "null_share": 0.0, "hidden_mask_share": 0.0}


class ReaderWarmupBatch(NamedTuple):
    """Sentences beside one passage each."""

    joint: Rows  # [B, J]
    text: MaskedText
    gold: Bool[Any, "B J W"]  # entry (i, w): pieces i .. i + w of the body are what is masked
    one_span: Bool[Any, "B"]  # what is masked is one span, so that it can stand in a passage


class ReaderWarmupSource:
    """Masked sentences, each beside the passage known to state it, or else beside its own.

    A share stands beside a neighbouring passage (`stages.reader.neighbour_share`), so that the reader learns to
    doubt: one that trusts every passage would teach the retriever to flee them all. Another share
    stands beside the null passage (`stages.reader.null_share`), so that p(y|null, x) is that of a reader who
    knows what it is to have nothing to read: else retrieval looks useful at first. In a share the
    rare pieces change places (`stages.reader.permuted_share`), so that nothing can be known by heart. In a share
    the blank cannot be seen (`stages.reader.hidden_mask_share`), as there is none in a question; there only spans
    are to be found.

    Before all that, in a share of the steps (`stages.reader.copying_share`), random pieces are hidden, each
    sentence beside its own passage: from nothing, names alone teach no copying.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, text: MaskedTextSource):
        self._store, self._lengths, self._seed = store, config.lengths, config.seed
        self._copies = round(
            config.stages.reader.copying_share * config.stages.reader.steps
        )  # steps
        stage = config.stages.reader
        copying = ConfigDict({**stage.to_dict(), **_COPYING})
        masked = text.masked_by(ConfigDict({**config.masking.to_dict(), **_COPYING_MASKS}))
        self._parts = {
            True: (masked, copying),
            False: (text, stage),
        }
        self._rare = RarePieces(store)

    def batch(
        self, step: int, size: int, batch_rows: Int64[np.ndarray, "R"] | None = None
    ) -> ReaderWarmupBatch:
        """The batch of one training step, or what is at `batch_rows` of it."""
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        copies = step < self._copies
        source, stage = self._parts[copies]
        text = source.batch(step, size, batch_rows)
        rng = sampling.generator(self._seed, "reader", step)
        chance = rng.random(size)[batch_rows]
        away = rng.choice(_NEIGHBOURS, size)[batch_rows]
        first, second = (text.source, text.evidence) if copies else (text.evidence, text.source)
        beside = np.where(first < 0, second, first)[:, None]
        wrong = chance < stage.neighbour_share
        beside[wrong] = (beside[wrong] + away[wrong, None]) % len(self._store)
        beside[chance >= 1 - stage.null_share] = NULL_PASSAGE
        joint = joint_rows(text.queries, self._store, beside, self._lengths.joint)
        joint = Rows(*(part[:, 0] for part in joint))
        table = self._rare.permutation(rng)
        chosen = (rng.random(size) < stage.permuted_share)[batch_rows]
        joint = joint._replace(ids=permute_rows(joint.ids, table, chosen))
        text = text._replace(targets=permute_rows(text.targets, table, chosen))
        unseen = (rng.random(size) < stage.hidden_mask_share)[batch_rows]
        blank = joint.ids == self._store.vocabulary.mask
        joint = joint._replace(mask=joint.mask & ~(unseen[:, None] & blank))
        gold, one_span = _masked_spans(joint, text, self._lengths.answer)
        weights = np.where(unseen[:, None], np.float32(0), text.weights)
        return ReaderWarmupBatch(joint, text._replace(weights=weights), gold, one_span)


def _masked_spans(joint: Rows, text: MaskedText, widest: int) -> tuple[np.ndarray, np.ndarray]:
    """`gold` and `one_span` of a ReaderWarmupBatch."""
    real = text.weights > 0
    counts = real.sum(-1)
    last = np.take_along_axis(text.positions, np.maximum(counts - 1, 0)[:, None], axis=1)[:, 0]
    one_span = (counts > 0) & (last - text.positions[:, 0] == counts - 1) & (counts <= widest)
    answers = [
        [pieces[own]] if whole else []
        for pieces, own, whole in zip(text.targets, real, one_span, strict=True)
    ]
    rows = Rows(*(part[:, None] for part in joint))
    return matching_spans(rows, answers, widest)[:, 0], one_span


def matching_spans(
    joint: Rows, answers: list[list[np.ndarray]], widest: int
) -> Bool[np.ndarray, "B R J W"]:
    """Every occurrence of these pieces in the body of each joint row, as (first piece, width - 1).

    Args:
      joint: [B, R, J].
      answers: for each of the B questions, its answers in word pieces.
      widest: W, in pieces; longer answers are never gold.
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
