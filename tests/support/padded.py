"""The losses of stages over padded rows: the reference for their losses over packed rows."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data.inverse_cloze import InverseClozeBatch
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.reader_warmup import ReaderWarmupBatch
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows, passage_rows
from realm_jax.models.span_head import INVALID_SPAN_SCORE
from realm_jax.retrieval.retriever import select_candidates
from realm_jax.trainer.stage import Loss


class PaddedBatch(NamedTuple):
    """A REALM batch in which every row has the greatest length that the config allows."""

    text: MaskedText
    null: Rows  # [1, P]
    passages: Rows  # [B, K - 1, P]
    joint: Rows  # [B, K, J]
    valid: Bool[Any, "B K"]


def padded_batch(
    config: ConfigDict, store: PassageStore, text: MaskedText, hits: np.ndarray
) -> PaddedBatch:
    """Joins queries with their candidates.

    Args:
      config: a checked config.
      store: the knowledge corpus.
      text: masked queries.
      hits: passage ids [B, number of hits], best first.
    """
    retrieval, lengths = config.retrieval, config.lengths
    own = hits == text.source[:, None] if retrieval.exclude_source else None
    chosen, valid = select_candidates(hits, own, retrieval.candidates, retrieval.null_passage)
    return PaddedBatch(
        text,
        passage_rows(store, np.array([NULL_PASSAGE]), lengths.passage),
        passage_rows(store, chosen[:, 1:], lengths.passage),
        joint_rows(text.queries, store, chosen, lengths.joint),
        valid,
    )


def padded_realm_loss(
    networks: SimpleNamespace, batch: PaddedBatch, marginal: str, key: Key[Array, ""] | None = None
) -> Loss:
    """`RealmStage.loss` of padded rows; scores all M slots for masked positions."""
    text, (size, count) = batch.text, batch.valid.shape
    keys = (None,) * 3 if key is None else tuple(jax.random.split(key, 3))
    queries = networks.embedder.embed(*text.queries, keys[0])
    null = networks.embedder.embed(*map(jnp.asarray, batch.null), keys[1])
    found = networks.embedder.embed(*_flat(batch.passages), keys[1]).reshape(size, count - 1, -1)
    null = jnp.broadcast_to(null[:, None], (size, 1, null.shape[-1]))
    scores = jnp.einsum("be,bke->bk", queries, jnp.concatenate([null, found], axis=1))
    positions, targets = (
        jnp.repeat(part, count, axis=0) for part in (text.positions, text.targets)
    )
    logits = networks.reader.mlm_logits(*_flat(batch.joint), positions, keys[2])
    log_p = losses.token_log_probs(logits, targets).reshape(size, count, -1)
    return losses.realm_loss(scores, log_p, text.weights, batch.valid, marginal)


def padded_ict_loss(networks: SimpleNamespace, batch: InverseClozeBatch) -> Loss:
    """`IctStage.loss` of padded rows."""
    queries, passages = (networks.embedder.embed(*rows) for rows in batch[:2])
    return losses.ict_loss(queries, passages, batch.ids)


def padded_reader_loss(networks: SimpleNamespace, batch: ReaderWarmupBatch, widest: int) -> Loss:
    """`ReaderStage.loss` of padded rows; `widest` is the length of an answer, in tokens."""
    (ids, mask, segments), text, size = batch.joint, batch.text, len(batch.gold)
    hidden = networks.reader.bert(ids, mask, segments)
    logits = networks.reader.mlm_logits(ids, mask, segments, text.positions)
    spans = networks.span_head.span_logits(hidden, mask, segments, widest)
    return losses.reader_warmup_loss(
        losses.token_log_probs(logits, text.targets),
        text.weights,
        spans.reshape(size, -1),
        batch.gold.reshape(size, -1),
        (spans > INVALID_SPAN_SCORE).reshape(size, -1),
        batch.one_span,
    )


def _flat(rows: Rows) -> Rows:
    return Rows(*(part.reshape(-1, part.shape[-1]) for part in rows))
