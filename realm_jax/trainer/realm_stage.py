"""REALM pre-training: predict masked pieces by marginalising over retrieved passages."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.corpus.store import PassageStore
from realm_jax.data import order
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows, passage_rows
from realm_jax.metrics import recall_at
from realm_jax.models.modules import Modules, Parameters
from realm_jax.search.mesh_retriever import MeshRetriever
from realm_jax.search.retriever import Retriever, candidates
from realm_jax.trainer.index_in_use import IndexInUse
from realm_jax.trainer.stage import Loss, Places


class PretrainingBatch(NamedTuple):
    """Masked queries with K candidates each; candidate 0 is the null passage."""

    text: MaskedText
    passages: Rows  # [B, K - 1, P]: the candidates but the null passage
    joint: Rows  # [B, K, J]
    valid: Bool[Any, "B K"]


class RealmStage:
    """REALM sections 3.1 to 3.3: embedder and reader learn together from masked text."""

    name = "realm"

    def __init__(
        self,
        config: ConfigDict,
        store: PassageStore,
        text: MaskedTextSource,
        held_out: MaskedTextSource,
        index: IndexInUse,
        mesh: Mesh | None = None,
    ):
        self.ahead = config.search.kind != "mesh" or mesh is None
        self.settings = config.stages.realm
        self.modules = Modules(config.model, store.vocabulary.size, ("embedder", "reader"))
        self._config, self._store, self._text, self._index = config, store, text, index
        self._retriever = Retriever(config, store.vocabulary.size)
        if not self.ahead:
            assert mesh is not None
            self._on_mesh = MeshRetriever(config, store.vocabulary.size, mesh)
        self._held_out = held_out
        self._null = passage_rows(store, np.array([NULL_PASSAGE]), config.lengths.passage)
        self._measure = jax.jit(
            lambda parameters, batch: self.loss(self.modules.bind(parameters), batch, None)[1]
        )

    def batch(
        self, step: int, places: Places = None, parameters: Parameters | None = None
    ) -> PretrainingBatch:
        """Masked queries and the candidates that the index of `step` gives them.

        `parameters` of the step are searched with if the config says so.
        """
        size = self.settings.batch
        text = self._text.batch(step, size, places)
        index = self._index.for_step(step)
        width = self._config.retrieval.candidates
        if self.ahead:
            return self.with_candidates(text, self._retriever.hits(index, text.queries, width))
        fresh = self._config.retrieval.search_with == "fresh" and parameters is not None
        embedder = parameters["embedder"] if fresh and parameters else None
        own = order.all_places(size, places)
        hits = self._on_mesh.hits(index, text.queries, own, size, width, embedder)
        return self.with_candidates(text, hits)

    def with_candidates(self, text: MaskedText, hits: np.ndarray) -> PretrainingBatch:
        """Joins queries with their hits (passage ids [B, H], best first)."""
        retrieval, lengths = self._config.retrieval, self._config.lengths
        own = text.own if retrieval.exclude_own else None
        chosen, valid = candidates(hits, own, retrieval.candidates, retrieval.null_passage)
        return PretrainingBatch(
            text,
            passage_rows(self._store, chosen[:, 1:], lengths.passage),
            joint_rows(text.queries, self._store, chosen, lengths.joint),
            valid,
        )

    def loss(
        self, networks: SimpleNamespace, batch: PretrainingBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """-log p(y|x) per masked token; the scores are made anew here, so gradients reach both."""
        keys = (None,) * 3 if key is None else tuple(jax.random.split(key, 3))
        text = batch.text
        queries = networks.embedder.embed(*text.queries, keys[0])
        passages = self._embed_candidates(networks, batch, keys[1])
        scores = jnp.einsum("be,bke->bk", queries, passages)
        size, count, _ = batch.joint.ids.shape
        positions = jnp.repeat(text.positions, count, axis=0)
        logits = networks.reader.mlm_logits(*_flat(batch.joint), positions, keys[2])
        targets = jnp.repeat(text.targets, count, axis=0)
        log_p = losses.token_log_probs(logits, targets).reshape(size, count, -1)
        marginal = self._config.objective.marginal
        return losses.realm_loss(scores, log_p, text.weights, batch.valid, marginal)

    def weight(self, batch: PretrainingBatch) -> Float[Array, ""]:
        """Masked pieces."""
        return jnp.maximum(batch.text.weights.sum(), 1.0)

    def _embed_candidates(
        self, networks: SimpleNamespace, batch: PretrainingBatch, key: Key[Array, ""] | None
    ) -> Float[Array, "B K E"]:
        """The null passage is the same for all queries, so it is embedded once."""
        size, count, _ = batch.passages.ids.shape
        found = networks.embedder.embed(*_flat(batch.passages), key)
        null = networks.embedder.embed(*map(jnp.asarray, self._null), key)
        null = jnp.broadcast_to(null[:, None], (size, 1, null.shape[-1]))
        return jnp.concatenate([null, found.reshape(size, count, -1)], axis=1)

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """On held-out sentences with the newest index in use: utility, loss and recall."""
        evaluation = self._config.evaluation
        index = self._index.current
        if index is None:
            return {}
        text = self._held_out.first(evaluation.queries)
        width = max(self._config.retrieval.candidates, evaluation.neighbours)
        hits = self._retriever.hits(index, text.queries, width)
        found = {f"held_out_{k}": v for k, v in self._measured(parameters, text, hits).items()}
        known = text.evidence >= 0
        if known.any():
            right = recall_at(hits[known], text.evidence[known], evaluation.neighbours)
            found[f"held_out_recall_at_{evaluation.neighbours}"] = float(right.mean())
        return found

    def _measured(
        self, parameters: Parameters, text: MaskedText, hits: np.ndarray
    ) -> dict[str, float]:
        """Mean metrics over batches of the training size; a last part batch is left out."""
        size = min(self.settings.batch, len(hits))
        sums: dict[str, float] = {}
        starts = range(0, len(hits) - size + 1, size)
        for start in starts:
            part = slice(start, start + size)
            some = jax.tree.map(lambda x, part=part: x[part], text)
            metrics = self._measure(parameters, self.with_candidates(some, hits[part]))
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value) / len(starts)
        return sums

    def close(self) -> None:
        """Lets go of the index."""
        self._index.close()


def _flat(rows: Rows) -> Rows:
    return Rows(*(part.reshape(-1, part.shape[-1]) for part in rows))
