"""Stage `realm`: REALM pre-training, masked LM marginalised over retrieved passages."""

import logging
from collections.abc import Iterator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int64, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import PassageStore
from realm_jax.data import sampling
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.packing import ungrouped
from realm_jax.data.pretraining import Buckets, PretrainingBatch, PretrainingRows
from realm_jax.metrics import recall_at
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel import hosts
from realm_jax.retrieval.answered import first_answered
from realm_jax.retrieval.make_retriever import make_retriever
from realm_jax.retrieval.retriever import Candidates, StepContext
from realm_jax.trainer.distance import realm_weights, reference_modules, with_penalty
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.stage import BatchRows, Evaluator, Loss
from realm_jax.trainer.state import TrainState

log = logging.getLogger(__name__)
COLLAPSE_THRESHOLD = 0.95  # mean p(null passage) above which retrieval counts as collapsed


class RealmStage:
    """Trains embedder and reader jointly on masked text (REALM, sections 3.1 to 3.3).

    Args:
      config: the run's config.
      store: the knowledge corpus Z with which the run was started.
      text: masked queries of the pre-training corpus X.
      held_out: masked queries for evaluation.
      index: returns the index that each step searches.
      mesh: the trainer's devices, for an index of kind `mesh`; None searches from the host.
      groups: G of a whole batch (`data.packing`).
    """

    name = "realm"

    def __init__(
        self,
        config: ConfigDict,
        store: PassageStore,
        text: MaskedTextSource,
        held_out: MaskedTextSource,
        index: IndexManager,
        mesh: Mesh | None = None,
        groups: int = 1,
    ):
        self.settings = config.stages.realm
        self.modules = Modules(config.model, store.vocabulary.size, ("embedder", "reader"))
        self._config, self._store, self._text, self._index = config, store, text, index
        self._knowledge = Knowledge(store, config)
        self._embedded = EmbedderRows(config, store.vocabulary)
        self._retriever = make_retriever(config, store, mesh)
        self.prefetchable = self._retriever.prefetchable
        self.may_end = bool(self.settings.stop_utility)
        self.reference = reference_modules(self.settings)
        self._held_out = held_out
        self._size = self.settings.batch // groups
        self._warned = False

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> PretrainingBatch:
        """Masked queries with candidates from the index of `step`; see `Stage.batch`."""
        size, index = self.settings.batch, self._index.for_step(step)
        context = StepContext(
            sampling.rows_of_batch(size, batch_rows),
            size,
            None if params is None else params["embedder"],
        )
        first = step * self.settings.draws
        texts = [
            self._text.batch(first + draw, size, batch_rows) for draw in range(self.settings.draws)
        ]
        store = self._knowledge.of(index)
        drawn = [(text, self._candidates(index, store, text, context)) for text in texts]
        return self._packed(step, *first_answered(drawn, store), store)

    def _candidates(
        self, index: PublishedIndex, store: PassageStore, text: MaskedText, step: StepContext
    ) -> Candidates:
        queries = self._embedded.queries(text.embedded)
        return self._retriever.candidates(index, queries, text.source, store, step)

    def with_candidates(
        self,
        text: MaskedText,
        hits: np.ndarray,
        size: int,
        buckets: Buckets | None = None,
        index: PublishedIndex | None = None,
    ) -> PretrainingBatch:
        """Builds a batch from queries and their hits.

        Args:
          text: masked queries.
          hits: passage ids [B, H], best first.
          size: b, queries per group.
          buckets: packed widths to choose from; None uses the maximal widths.
          index: of the hits; None: one of the corpus with which the run was started.
        """
        store = self._store if index is None else self._knowledge.of(index)
        chosen = self._retriever.select(hits, text.source, store)
        return self._joined(text, chosen, store, size, buckets)

    def _joined(
        self,
        text: MaskedText,
        chosen: Candidates,
        store: PassageStore,
        size: int,
        buckets: Buckets | None = None,
        **agree: Any,
    ) -> PretrainingBatch:
        rows = PretrainingRows(self._config, store, size)
        return rows.batch(text, *chosen, buckets or rows.widest, **agree)

    def _packed(
        self, step: int, text: MaskedText, chosen: Candidates, store: PassageStore
    ) -> PretrainingBatch:
        """Packs to the width that holds the rows of every process.

        The same agreement of processes decides which index the next step searches.
        """

        def widest(bucket: int) -> int:
            mine = [bucket, self._index.offer(step + 1)]
            answers = hosts.all_gather("realm/packing", step, mine)
            self._index.accept([offer for _, offer in answers])
            return max(bucket for bucket, _ in answers)

        return self._joined(text, chosen, store, self._size, self._usual, agree=widest)

    @cached_property
    def _usual(self) -> Buckets:
        rows = PretrainingRows(self._config, self._store, self._size)
        return rows.usual(self._text) if self._config.lengths.fitted else rows.widest

    def loss(
        self, networks: SimpleNamespace, batch: PretrainingBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """-log p(y|x) per masked word piece; see `Stage.loss`.

        Relevance scores are recomputed from the params, so gradients reach the embedder. With
        `stages.realm.distance_penalty`, training adds the distance to the vectors before the stage.
        """
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        vectors = networks.embedder.embed_packed(*batch.embedded, keys[0])
        log_p = _token_log_p(networks, batch, keys[1])
        found = losses.realm_loss(
            ungrouped(_scores(networks, batch, vectors)),
            ungrouped(log_p),
            ungrouped(batch.weights),
            ungrouped(batch.valid),
            self.settings.marginal,
            self.settings.retriever_loss,
        )
        weights = realm_weights(batch.valid)
        loss, metrics = with_penalty(
            found, self.settings, networks, batch.embedded, vectors, weights
        )
        masks = (block.mask for block in (*batch.embedded.blocks, *batch.read.blocks))
        return loss, metrics | losses.real_pieces(batch.valid[..., 0].size, *masks)

    def weight(self, batch: PretrainingBatch) -> Float[Array, ""]:
        """The number of masked word pieces; 0 if all rows fill up a batch of held-out sentences."""
        return batch.weights.sum()

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """Metrics on held-out sentences after `step` steps, with the index of the last of them.

        The current index may already be a newer one, because batches are prefetched.
        """
        index = self._index.searched_at(step - 1)
        return {} if index is None else self.evaluate_with(index, step, params, evaluation)

    def evaluate_with(
        self, index: PublishedIndex, step: int, params: Parameters, evaluation: Evaluator
    ) -> dict[str, float]:
        """Retrieval utility, loss and recall on held-out sentences with a given index."""
        found: list[np.ndarray] = []  # hits of each batch
        batches = self._held_out_batches(index, params, evaluation.rows, found)
        measured = evaluation.mean(params, batches)
        if not measured:
            return {}
        metrics = {f"held_out_{name}": value for name, value in measured.items()}
        self._warn_if_collapsed(metrics["held_out_p_null"])
        recall = self._recall(step, evaluation.rows, found)
        if recall is not None:
            metrics[f"held_out_recall_at_{self._config.evaluation.recall_k}"] = recall
        return metrics

    def ends(self, metrics: dict[str, float]) -> bool:
        """Whether held-out utility is below `stages.realm.stop_utility`."""
        least, utility = self.settings.stop_utility, metrics.get("held_out_retrieval_utility")
        if not least or utility is None or utility >= least:
            return False
        log.warning(
            "held-out retrieval utility is %.3f, below stages.realm.stop_utility=%.3f: the stage "
            "ends here",
            utility,
            least,
        )
        return True

    def conclude(
        self, state: TrainState, metrics: dict[str, float]
    ) -> tuple[Parameters, dict[str, float]]:
        """Resets the embedder to its params before this stage if held-out utility is too low.

        Where passages do not help, the embedder learns noise. Adds the metric `embedder_kept`, 1 or
        0, if `stages.realm.least_utility` is set.
        """
        least, utility = self.settings.least_utility, metrics.get("held_out_retrieval_utility")
        if not least or utility is None:
            return state.parameters, metrics
        kept = utility >= least
        if not kept:
            log.warning(
                "held-out retrieval utility is %.3f, below stages.realm.least_utility=%.3f: "
                "passages do not help to fill blanks, so the embedder is left as it was before "
                "this stage",
                utility,
                least,
            )
        params = state.parameters if kept else state.parameters | state.reference
        return params, {**metrics, "embedder_kept": float(kept)}

    def _held_out_batches(
        self,
        index: PublishedIndex,
        params: Parameters,
        rows: Int64[np.ndarray, "R"],
        found: list[np.ndarray],
    ) -> Iterator[PretrainingBatch]:
        """Batches of the training size; appends their hits to `found`."""
        width = max(self._config.retrieval.candidates, self._config.evaluation.recall_k)
        context = StepContext(rows, self.settings.batch, params["embedder"])
        for text in self._held_out_text(rows):
            queries = self._embedded.queries(text.embedded)
            hits = self._retriever.hits(index, queries, width, context)
            found.append(hits)
            yield self.with_candidates(text, hits, self._size, index=index)

    def _held_out_text(self, rows: Int64[np.ndarray, "R"]) -> Iterator[MaskedText]:
        """These rows of each batch of held-out queries.

        The last batch is filled with queries of weight 0.
        """
        text, count = self._first_held_out, len(self._first_held_out.source)
        for start in range(0, count, self.settings.batch):
            number = start + rows
            part: MaskedText = jax.tree.map(lambda leaf, n=number: leaf[n % count], text)
            yield part._replace(weights=part.weights * (number < count)[:, None])

    @cached_property
    def _first_held_out(self) -> MaskedText:
        return self._held_out.first(self._config.evaluation.queries)

    def _recall(
        self, step: int, rows: Int64[np.ndarray, "R"], found: list[np.ndarray]
    ) -> float | None:
        """Recall of all processes together; None if no query has a known evidence passage."""
        texts, k = self._held_out_text(rows), self._config.evaluation.recall_k
        sums = np.zeros(2)
        for hits, text in zip(found, texts, strict=True):
            known = (text.evidence >= 0) & text.weights.any(1)
            sums += recall_at(hits[known], text.evidence[known], k).sum(), known.sum()
        everyone = np.sum(hosts.all_gather("realm/recall", step, sums.tolist()), axis=0)
        return float(everyone[0] / everyone[1]) if everyone[1] else None

    def _warn_if_collapsed(self, p_null: float) -> None:
        """Warns once: from here on, the run trains a masked language model without retrieval."""
        if p_null < COLLAPSE_THRESHOLD or self._warned:
            return
        self._warned = True
        log.warning(
            "retrieval has collapsed: the null passage holds %.0f %% of p(z|x) on held-out "
            "sentences; start again with a longer warm start (stages.ict.steps, "
            "stages.reader.steps), or with more retrieval.candidates and a lower "
            "stages.realm.learning_rate",
            100 * p_null,
        )

    def step_fields(self, step: int) -> dict[str, Any]:
        """The index that the step searched, and its age in steps and seconds."""
        return self._index.age(step)

    def close(self) -> None:
        """Ends a wait for an index, and stops watching for new ones."""
        self._index.close()


def _scores(
    networks: SimpleNamespace, batch: PretrainingBatch, vectors: Float[Array, "G N E"]
) -> Float[Array, "G b K"]:
    """Relevance scores of all candidates; queries of a group share one null passage.

    Args:
      networks: has the embedder.
      batch: G groups of b queries.
      vectors: of each group's queries, null passage and other candidates.
    """
    size = batch.valid.shape[1]
    queries, null, found = jnp.split(vectors, (size, size + 1), axis=1)
    found = networks.embedder.scores(
        "gbe,gbke->gbk", queries, found.reshape(*queries.shape[:2], -1, queries.shape[2])
    )
    null = networks.embedder.scores("gbe,gke->gbk", queries, null)
    return networks.embedder.with_null_score(jnp.concatenate([null, found], axis=2))


def _token_log_p(
    networks: SimpleNamespace, batch: PretrainingBatch, key: Key[Array, ""] | None
) -> Float[Array, "G b K M"]:
    """log p(y_j|z, x) of the masked pieces given each candidate; undefined in unused slots."""
    groups, size, count = batch.valid.shape
    starts = batch.read.starts.reshape(groups, size, count)
    rows = jnp.take_along_axis(starts, batch.query[:, :, None], axis=1)
    positions = rows + batch.position[:, :, None]  # [G, U, K]
    logits = networks.reader.mlm_logits_packed(
        batch.read.blocks, positions.reshape(groups, -1), key
    )
    targets = jnp.repeat(batch.target, count, axis=1)
    listed = losses.token_log_probs(logits, targets).reshape(positions.shape)
    found = jnp.take_along_axis(listed, batch.listed.reshape(groups, -1, 1), axis=1)
    return found.reshape(groups, size, -1, count).swapaxes(2, 3)
