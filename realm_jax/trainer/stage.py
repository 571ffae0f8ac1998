"""What differs between the stages of training: networks, batches, loss and evaluation."""

from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data.inverse_cloze import InverseCloze, InverseClozeSource
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.reading import Reading, ReadingSource
from realm_jax.models.modules import Modules, Parameters
from realm_jax.models.span_head import IMPOSSIBLE

Places = np.ndarray | None
Loss = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]


@runtime_checkable
class Stage(Protocol):
    """One stage of training, as the loop sees it."""

    name: str
    settings: ConfigDict  # config.stages.NAME
    modules: Modules
    ahead: bool  # batches need neither parameters nor devices: they are made beside the steps

    def batch(self, step: int, places: Places = None) -> Any:
        """The host arrays of one step, first axis B; a function of the seed and `step`.

        Where `ahead` is false it takes the parameters of the step as a third argument.

        Args:
          step: of the stage.
          places: rows of the batch that this process makes; None is all.
        """

    def loss(self, networks: SimpleNamespace, batch: Any, key: Key[Array, ""] | None) -> Loss:
        """Traced: the mean loss of a batch, and metrics."""

    def weight(self, batch: Any) -> Float[Array, ""]:
        """Traced: of how many things the loss is the mean; micro-batches count by it."""

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Figures on held-out examples."""


class IctStage:
    """Inverse cloze task: the embedder learns which passage a sentence came from."""

    name, ahead = "ict", True

    def __init__(self, config: ConfigDict, store: PassageStore):
        self.settings = config.stages.ict
        self.modules = Modules(config.model, store.vocabulary.size, ("embedder",))
        self._source = InverseClozeSource(store, config)

    def batch(self, step: int, places: Places = None) -> InverseCloze:
        """Sentences and their passages."""
        return self._source.batch(step, self.settings.batch, places)

    def loss(
        self, networks: SimpleNamespace, batch: InverseCloze, key: Key[Array, ""] | None
    ) -> Loss:
        """In-batch softmax over all passages of the global batch."""
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        queries = networks.embedder.embed(*batch.queries, keys[0])
        passages = networks.embedder.embed(*batch.passages, keys[1])
        return losses.ict_loss(queries, passages, batch.ids)

    def weight(self, batch: InverseCloze) -> Float[Array, ""]:
        """Queries; each has the passages of its micro-batch alone for negatives."""
        return jnp.float32(len(batch.ids))

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Nothing: recall on masked sentences is measured between stages (`trainer.run`)."""
        return {}


class ReaderStage:
    """The reader learns to read before REALM: to copy what is masked, and to point at it.

    Both heads learn from one pass of BERT over a sentence beside a passage (`data.reading`).
    """

    name, ahead = "reader", True

    def __init__(self, config: ConfigDict, store: PassageStore, text: MaskedTextSource):
        self.settings, self._widest = config.stages.reader, config.lengths.answer
        self.modules = Modules(config.model, store.vocabulary.size, ("reader", "span_head"))
        self._source = ReadingSource(config, store, text)

    def batch(self, step: int, places: Places = None) -> Reading:
        """Joint rows of sentence and passage, and what is masked."""
        return self._source.batch(step, self.settings.batch, places)

    def loss(self, networks: SimpleNamespace, batch: Reading, key: Key[Array, ""] | None) -> Loss:
        """Cross-entropy at the masked positions plus that of the masked span in the passage."""
        ids, mask, segments = batch.joint
        hidden = networks.reader.bert(ids, mask, segments, key)
        logits = networks.reader.predict(hidden, batch.text.positions)
        spans = networks.span_head.span_logits(hidden, mask, segments, self._widest)
        size = len(ids)
        return losses.reading_loss(
            losses.token_log_probs(logits, batch.text.targets),
            batch.text.weights,
            spans.reshape(size, -1),
            batch.gold.reshape(size, -1),
            (spans > IMPOSSIBLE).reshape(size, -1),
            batch.one_span,
        )

    def weight(self, batch: Reading) -> Float[Array, ""]:
        """Masked pieces, as in stage realm."""
        return jnp.maximum(batch.text.weights.sum(), 1.0)

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Nothing: the REALM stage measures what this one is for."""
        return {}
