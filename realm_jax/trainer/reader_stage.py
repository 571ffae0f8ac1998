"""Stage `reader`: reader warm-up on masked text, before REALM pre-training."""

from types import SimpleNamespace

import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.reader_warmup import ReaderWarmupBatch, ReaderWarmupSource
from realm_jax.models.modules import Modules, Parameters
from realm_jax.models.span_head import INVALID_SPAN_SCORE
from realm_jax.trainer.stage import BatchRows, Evaluator, IndexFreeStage, Loss


class ReaderStage(IndexFreeStage):
    """Trains the reader's masked-LM head and span head on a sentence with a passage.

    Both heads are trained from one forward pass of BERT (`data.reader_warmup`).
    """

    name, prefetchable = "reader", True

    def __init__(self, config: ConfigDict, store: PassageStore, text: MaskedTextSource):
        self.settings, self._max_answer = config.stages.reader, config.lengths.answer
        self.modules = Modules(config.model, store.vocabulary.size, ("reader", "span_head"))
        self._source = ReaderWarmupSource(config, store, text)

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> ReaderWarmupBatch:
        """See `Stage.batch`."""
        return self._source.batch(step, self.settings.batch, batch_rows)

    def loss(
        self, networks: SimpleNamespace, batch: ReaderWarmupBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """Masked-LM cross-entropy plus cross-entropy of the masked span in the passage."""
        ids, mask, segments = batch.joint
        hidden = networks.reader.bert(ids, mask, segments, key)
        positions = jnp.asarray(batch.text.positions)[:, :, None]
        logits = networks.reader.predict(jnp.take_along_axis(hidden, positions, axis=1))
        spans = networks.span_head.span_logits(hidden, mask, segments, self._max_answer)
        size = len(ids)
        loss, metrics = losses.reader_warmup_loss(
            losses.token_log_probs(logits, batch.text.targets),
            batch.text.weights,
            spans.reshape(size, -1),
            batch.gold.reshape(size, -1),
            (spans > INVALID_SPAN_SCORE).reshape(size, -1),
            batch.one_span,
        )
        return loss, metrics | losses.real_pieces(size, mask)

    def weight(self, batch: ReaderWarmupBatch) -> Float[Array, ""]:
        """The number of masked word pieces, as in stage realm."""
        return jnp.maximum(batch.text.weights.sum(), 1.0)

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """No metrics: stage realm evaluates the reader."""
        return {}
