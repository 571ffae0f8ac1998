"""What differs between the stages of training: networks, batches, loss and evaluation."""

from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data import order
from realm_jax.data.inverse_cloze import InverseCloze, InverseClozeSource
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.renaming import rename_answers
from realm_jax.data.rows import Rows, joint_rows
from realm_jax.models.modules import Modules, Parameters

_NEIGHBOURS = (-2, -1, 1, 2)  # passages away: mostly of the same document

Loss = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]


@runtime_checkable
class Stage(Protocol):
    """One stage of training, as the loop sees it."""

    name: str
    settings: ConfigDict  # config.stages.NAME
    modules: Modules

    def batch(self, step: int) -> Any:
        """The host arrays of one step, first axis B; a function of the seed and `step`."""

    def loss(self, networks: SimpleNamespace, batch: Any, key: Key[Array, ""] | None) -> Loss:
        """Traced: the mean loss of a batch, and metrics."""

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Figures on held-out examples."""


class IctStage:
    """Inverse cloze task: the embedder learns which passage a sentence came from."""

    name = "ict"

    def __init__(self, config: ConfigDict, store: PassageStore):
        self.settings = config.stages.ict
        self.modules = Modules(config.model, store.vocabulary.size, ("embedder",))
        self._source = InverseClozeSource(store, config)

    def batch(self, step: int) -> InverseCloze:
        """Sentences and their passages."""
        return self._source.batch(step, self.settings.batch)

    def loss(
        self, networks: SimpleNamespace, batch: InverseCloze, key: Key[Array, ""] | None
    ) -> Loss:
        """In-batch softmax over all passages of the global batch."""
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        queries = networks.embedder.embed(*batch.queries, keys[0])
        passages = networks.embedder.embed(*batch.passages, keys[1])
        return losses.ict_loss(queries, passages, batch.ids)

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Nothing: recall on masked sentences is measured between stages (`trainer.run`)."""
        return {}


class ReaderStage:
    """Masked LM beside the passage that states the fact: the reader learns to read before REALM.

    Where no such passage is known, the sentence's own passage serves. A share of the answers is
    renamed (`masking.rename`), so that they cannot be known by heart and must be read; a share of
    the sentences stand beside a neighbouring passage (`masking.neighbour`), so that the reader
    learns to doubt: one that trusts every passage would teach the retriever to flee them all.
    """

    name = "reader"

    def __init__(self, config: ConfigDict, store: PassageStore, text: MaskedTextSource):
        self.settings, self._length = config.stages.reader, config.lengths.joint
        self.modules = Modules(config.model, store.vocabulary.size, ("reader",))
        self._store, self._text, self._words = store, text, store.vocabulary
        self._rename, self._neighbour = config.masking.rename, config.masking.neighbour
        self._seed = config.seed

    def batch(self, step: int) -> tuple[Rows, Any]:
        """Joint rows of sentence and passage, and what is masked."""
        text = self._text.batch(step, self.settings.batch)
        right = np.where(text.evidence < 0, text.own, text.evidence)
        rng = order.generator(self._seed, "reader", step)
        wrong = rng.random(len(right)) < self._neighbour
        steps = rng.choice(_NEIGHBOURS, len(right))
        beside = np.where(wrong, (right + steps) % len(self._store), right)
        joint = joint_rows(text.queries, self._store, beside[:, None], self._length)
        joint = Rows(*(part[:, 0] for part in joint))
        renamed = ~wrong & (rng.random(len(right)) < self._rename)
        return rename_answers(joint, text, renamed, self._words, rng)

    def loss(self, networks: SimpleNamespace, batch: Any, key: Key[Array, ""] | None) -> Loss:
        """Cross-entropy at the masked positions."""
        joint, text = batch
        logits = networks.reader.mlm_logits(*joint, text.positions, key)
        log_p = losses.token_log_probs(logits, text.targets)
        return losses.masked_lm_loss(log_p, text.weights)

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Nothing: the REALM stage measures what this one is for."""
        return {}
