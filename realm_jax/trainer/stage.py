"""What differs between the stages of training: networks, batches, loss and evaluation."""

from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int64, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data.inverse_cloze import InverseClozeBatch, InverseClozeSource
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.packing import (
    SAMPLE_QUERIES,
    Packed,
    Widths,
    sample_groups,
    grouped,
    make_buckets,
    lengths_of,
    pack,
    bucket_for,
)
from realm_jax.data.reader_warmup import ReaderWarmupBatch, ReaderWarmupSource
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules, Parameters
from realm_jax.models.span_head import INVALID_SPAN_SCORE
from realm_jax.parallel import hosts

BatchRows = np.ndarray | None
Loss = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]


@runtime_checkable
class Stage(Protocol):
    """One stage of training, as the loop sees it."""

    name: str
    settings: ConfigDict  # config.stages.NAME
    modules: Modules
    prefetchable: bool  # batches need neither params nor devices: a thread builds them ahead

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> Any:
        """The host arrays of one step, first axis B or G; a function of the seed and `step`.

        Rows of a batch are in G groups where they are packed (`data.packing`).

        Args:
          step: of the stage.
          batch_rows: rows of the batch that this process makes; None is all.
          params: of the step; the loop passes them unless the stage is prefetchable.
        """

    def loss(self, networks: SimpleNamespace, batch: Any, key: Key[Array, ""] | None) -> Loss:
        """Traced: the mean loss of a batch, and metrics."""

    def weight(self, batch: Any) -> Float[Array, ""]:
        """Traced: of how many things the loss is the mean; micro-batches count by it."""

    def evaluate(self, step: int, params: Parameters) -> dict[str, float]:
        """Metrics on held-out examples after `step` steps."""

    def step_fields(self, step: int) -> dict[str, Any]:
        """Fields that the host adds to the log record of a step."""


class IndexFreeStage:
    """What stages that search no index have in common."""

    def step_fields(self, step: int) -> dict[str, Any]:
        """Nothing."""
        return {}


class IctBatch(NamedTuple):
    """Sentences and the passages they came from, in G groups of b."""

    rows: Packed  # b sentences, b passages
    ids: Int64[Any, "G b"]  # of the passages


class IctStage(IndexFreeStage):
    """Inverse cloze task: the embedder learns which passage a sentence came from.

    Args:
      config: of the run.
      store: the knowledge corpus Z.
      groups: G of a whole batch.
      usual: whether rows are packed as the corpus usually needs them; otherwise widest.
    """

    name, prefetchable = "ict", True

    def __init__(
        self, config: ConfigDict, store: PassageStore, groups: int = 1, usual: bool = True
    ):
        self.settings = config.stages.ict
        self.modules = Modules(config.model, store.vocabulary.size, ("embedder",))
        self._source = InverseClozeSource(store, config)
        self._size, self._lengths, self._usual = (
            self.settings.batch // groups,
            config.lengths,
            usual,
        )

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> IctBatch:
        """Sentences and their passages."""
        made = self._source.batch(step, self.settings.batch, batch_rows)
        rows = self._rows(made, len(made.ids) // self._size)
        bucket = bucket_for(lengths_of(rows), self._buckets)
        bucket = max(hosts.all_gather("ict/bucket", step, bucket))
        return IctBatch(pack(rows, self._buckets[bucket]), made.ids.reshape(-1, self._size))

    @cached_property
    def _buckets(self) -> tuple[Widths, ...]:
        most = [self._lengths.query] * self._size + [self._lengths.passage] * self._size
        if not self._usual:
            return make_buckets(most)
        made = self._source.batch(0, SAMPLE_QUERIES)
        return make_buckets(most, sample_groups(lengths_of(self._rows(made, SAMPLE_QUERIES)), self._size))

    def _rows(self, made: InverseClozeBatch, groups: int) -> list[Rows]:
        return [grouped(made.queries, groups), grouped(made.passages, groups)]

    def loss(self, networks: SimpleNamespace, batch: IctBatch, key: Key[Array, ""] | None) -> Loss:
        """In-batch softmax over all passages of the global batch."""
        vectors = networks.embedder.embed_packed(*batch.rows, key)
        halves = jnp.split(vectors, 2, axis=1)
        queries, passages = (half.reshape(-1, half.shape[-1]) for half in halves)
        loss, metrics = losses.ict_loss(queries, passages, batch.ids.reshape(-1))
        masks = (block.mask for block in batch.rows.blocks)
        return loss, metrics | losses.real_pieces(batch.ids.size, *masks)

    def weight(self, batch: IctBatch) -> Float[Array, ""]:
        """Queries; each has the passages of its micro-batch alone for negatives."""
        return jnp.float32(batch.ids.size)

    def evaluate(self, step: int, params: Parameters) -> dict[str, float]:
        """Nothing: recall on masked sentences is measured between stages (`trainer.run`)."""
        return {}


class ReaderStage(IndexFreeStage):
    """The reader learns to read before REALM: to copy what is masked, and to point at it.

    Both heads learn from one pass of BERT over a sentence beside a passage (`data.reading`).
    """

    name, prefetchable = "reader", True

    def __init__(self, config: ConfigDict, store: PassageStore, text: MaskedTextSource):
        self.settings, self._widest = config.stages.reader, config.lengths.answer
        self.modules = Modules(config.model, store.vocabulary.size, ("reader", "span_head"))
        self._source = ReaderWarmupSource(config, store, text)

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> ReaderWarmupBatch:
        """Joint rows of sentence and passage, and what is masked."""
        return self._source.batch(step, self.settings.batch, batch_rows)

    def loss(
        self, networks: SimpleNamespace, batch: ReaderWarmupBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """Cross-entropy at the masked positions plus that of the masked span in the passage."""
        ids, mask, segments = batch.joint
        hidden = networks.reader.bert(ids, mask, segments, key)
        places = jnp.asarray(batch.text.positions)[:, :, None]
        logits = networks.reader.predict(jnp.take_along_axis(hidden, places, axis=1))
        spans = networks.span_head.span_logits(hidden, mask, segments, self._widest)
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
        """Masked pieces, as in stage realm."""
        return jnp.maximum(batch.text.weights.sum(), 1.0)

    def evaluate(self, step: int, params: Parameters) -> dict[str, float]:
        """Nothing: the REALM stage measures what this one is for."""
        return {}
