"""Stage `ict`: the inverse cloze task (ORQA), which warm-starts the embedder."""

from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int64, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data.inverse_cloze import InverseClozeBatch, InverseClozeSource
from realm_jax.data.packing import (
    SAMPLE_QUERIES,
    Packed,
    Widths,
    grouped,
    lengths_of,
    make_buckets,
    pack,
    sample_groups,
)
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules, Parameters
from realm_jax.trainer.distance import reference_modules, with_penalty
from realm_jax.trainer.stage import BatchRows, Evaluator, IndexFreeStage, Loss


class IctBatch(NamedTuple):
    """Sentences and their source passages, in G groups of b."""

    rows: Packed  # b sentences, then b passages
    ids: Int64[Any, "G b"]  # passage ids


class IctStage(IndexFreeStage):
    """Trains the embedder to find the passage that a sentence was taken from.

    Args:
      config: the run's config.
      store: the knowledge corpus Z.
      groups: G of a whole batch.
    """

    name, prefetchable = "ict", True

    def __init__(self, config: ConfigDict, store: PassageStore, groups: int = 1):
        self.settings = config.stages.ict
        self.reference = reference_modules(self.settings)
        self.modules = Modules(config.model, store.vocabulary.size, ("embedder",))
        self._source = InverseClozeSource(store, config)
        self._size, self._passage = self.settings.batch // groups, config.lengths.passage
        self._fitted, self._queries = config.lengths.fitted, config.evaluation.queries

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> IctBatch:
        """See `Stage.batch`."""
        examples = self._source.batch(step, self.settings.batch, batch_rows)
        rows = self._rows(examples, len(examples.ids) // self._size)
        packed = self._packed(step, rows, self._buckets)
        return IctBatch(packed, examples.ids.reshape(-1, self._size))

    @cached_property
    def _buckets(self) -> tuple[Widths, ...]:
        rows = self._source.rows
        max_lengths = [rows.query] * self._size + [self._passage] * self._size
        if not self._fitted:
            return make_buckets(max_lengths)
        examples = self._source.batch(0, SAMPLE_QUERIES)
        return make_buckets(
            max_lengths, sample_groups(lengths_of(self._rows(examples, SAMPLE_QUERIES)), self._size)
        )

    def _rows(self, examples: InverseClozeBatch, groups: int) -> list[Rows]:
        return [grouped(examples.queries, groups), grouped(examples.passages, groups)]

    def loss(self, networks: SimpleNamespace, batch: IctBatch, key: Key[Array, ""] | None) -> Loss:
        """In-batch softmax over all passages of the global batch; see `Stage.loss`.

        With `stages.ict.distance_penalty`, training adds the distance to the vectors before the
        stage.
        """
        vectors = networks.embedder.embed_packed(*batch.rows, key)
        halves = jnp.split(vectors, 2, axis=1)
        queries, passages = (half.reshape(-1, half.shape[-1]) for half in halves)
        scaled = networks.embedder.scaled(queries)
        found = losses.ict_loss(scaled, passages, batch.ids.reshape(-1))
        same = jnp.ones(vectors.shape[:2])
        loss, metrics = with_penalty(found, self.settings, networks, batch.rows, vectors, same)
        masks = (block.mask for block in batch.rows.blocks)
        return loss, metrics | losses.real_pieces(batch.ids.size, *masks)

    def weight(self, batch: IctBatch) -> Float[Array, ""]:
        """The number of queries; negatives come from the same micro-batch only."""
        return jnp.float32(batch.ids.size)

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """Loss and accuracy on the pairs of the steps after the last one, without dropout."""
        size, last = self.settings.batch, self.settings.steps
        steps = range(last, last + -(-self._queries // size))
        measured = evaluation.mean(params, (self._widest(one, evaluation.rows) for one in steps))
        return {f"evaluation_{name}": value for name, value in measured.items()}

    def _widest(self, step: int, batch_rows: BatchRows) -> IctBatch:
        """The batch of a step in the bucket that fits any rows, so that one shape is compiled."""
        examples = self._source.batch(step, self.settings.batch, batch_rows)
        groups = len(examples.ids) // self._size
        packed = pack(self._rows(examples, groups), self._buckets[-1])
        return IctBatch(packed, examples.ids.reshape(groups, -1))
