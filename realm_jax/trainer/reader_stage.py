"""Stage `reader`: reader warm-up on masked text, before REALM pre-training."""

from functools import cached_property
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.packing import (
    SAMPLE_QUERIES,
    Packed,
    Widths,
    grouped,
    lengths_of,
    make_buckets,
    sample_groups,
    ungrouped,
)
from realm_jax.data.reader_warmup import ReaderWarmupBatch, ReaderWarmupSource
from realm_jax.models.bert import rows_of_streams
from realm_jax.models.modules import Modules, Parameters
from realm_jax.models.span_head import INVALID_SPAN_SCORE
from realm_jax.trainer.stage import BatchRows, Evaluator, IndexFreeStage, Loss


class ReaderBatch(NamedTuple):
    """Masked sentences with one passage each, in G groups of b."""

    rows: Packed  # the b joint rows of each group
    examples: ReaderWarmupBatch  # leaves [G, b, ...]


class ReaderStage(IndexFreeStage):
    """Trains the reader's masked-LM head and span head on a sentence with a passage.

    Both heads are trained from one forward pass of BERT (`data.reader_warmup`).

    Args:
      config: the run's config.
      store: the knowledge corpus Z.
      text: masked sentences of the pre-training corpus X.
      groups: G of a whole batch.
    """

    name, prefetchable = "reader", True

    def __init__(
        self, config: ConfigDict, store: PassageStore, text: MaskedTextSource, groups: int = 1
    ):
        self.settings, self._lengths = config.stages.reader, config.lengths
        self.modules = Modules(config.model, store.vocabulary.size, ("reader", "span_head"))
        self._source = ReaderWarmupSource(config, store, text)
        self._size = self.settings.batch // groups

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> ReaderBatch:
        """See `Stage.batch`."""
        examples = self._source.batch(step, self.settings.batch, batch_rows)
        groups = len(examples.gold) // self._size
        return ReaderBatch(
            self._packed(step, [grouped(examples.joint, groups)], self._buckets),
            jax.tree.map(lambda leaf: leaf.reshape(groups, self._size, *leaf.shape[1:]), examples),
        )

    @cached_property
    def _buckets(self) -> tuple[Widths, ...]:
        """For all sampled rows of the copying phase and those after it; for any rows.

        The stage is short: a third program would often take longer to compile than it saves.
        """
        max_lengths = [self._lengths.joint] * self._size
        if not self._lengths.fitted:
            return make_buckets(max_lengths)
        steps = (0, self.settings.steps)
        samples = [self._source.batch(step, SAMPLE_QUERIES).joint for step in steps]
        lengths = np.concatenate([lengths_of([grouped(rows, SAMPLE_QUERIES)]) for rows in samples])
        return make_buckets(max_lengths, sample_groups(lengths, self._size), quantiles=(1.0,))

    def loss(
        self, networks: SimpleNamespace, batch: ReaderBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """Masked-LM cross-entropy plus cross-entropy of the masked span in the passage."""
        joint, text, gold, one_span = jax.tree.map(ungrouped, batch.examples)
        size, width = joint.ids.shape
        streams = networks.reader.bert.packed(batch.rows.blocks, None, key)
        hidden = rows_of_streams(streams, batch.rows.starts, width)
        positions = jnp.asarray(text.positions)[:, :, None]
        logits = networks.reader.predict(jnp.take_along_axis(hidden, positions, axis=1))
        spans = networks.span_head.span_logits(
            hidden, joint.mask, joint.segments, self._lengths.answer
        )
        loss, metrics = losses.reader_warmup_loss(
            losses.token_log_probs(logits, text.targets),
            text.weights,
            spans.reshape(size, -1),
            gold.reshape(size, -1),
            (spans > INVALID_SPAN_SCORE).reshape(size, -1),
            one_span,
        )
        masks = (block.mask for block in batch.rows.blocks)
        return loss, metrics | losses.real_pieces(size, *masks)

    def weight(self, batch: ReaderBatch) -> Float[Array, ""]:
        """The number of masked word pieces, as in stage realm."""
        return jnp.maximum(batch.examples.text.weights.sum(), 1.0)

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """No metrics: stage realm evaluates the reader."""
        return {}
