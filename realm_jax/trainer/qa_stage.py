"""Stage `qa`: open-QA fine-tuning of question embedder and reader on a fixed index (ORQA)."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.data import sampling
from realm_jax.data.open_qa import QuestionBatch, QuestionSource
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules, Parameters
from realm_jax.models.operations import relevance_scores
from realm_jax.models.span_head import INVALID_SPAN_SCORE
from realm_jax.trainer.stage import BatchRows, Evaluator, IndexFreeStage, Loss


class QaStage(IndexFreeStage):
    """Scores the retrieved passages of each question and reads the best ones.

    Args:
      config: the run's config.
      vocabulary: V.
      source: questions with their retrieved passages.
    """

    name, prefetchable = "qa", True

    def __init__(self, config: ConfigDict, vocabulary: int, source: QuestionSource):
        self.settings, self._seed = config.stages.qa, config.seed
        self._max_answer = config.lengths.answer
        self.modules = Modules(config.model, vocabulary, ("embedder", "reader", "span_head"))
        self._source = source

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> QuestionBatch:
        """See `Stage.batch`."""
        size = self.settings.batch
        drawn = sampling.example_ids(self._seed, step, size, len(self._source))
        return self._source.take(drawn[sampling.rows_of_batch(size, batch_rows)])

    def loss(
        self, networks: SimpleNamespace, batch: QuestionBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """Reader loss over spans of the best passages, plus retriever loss over all hits.

        The hits of other questions in the batch are negatives too. With its own hits only, the
        question vector could move to a region of the index with unrelated passages.
        """
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        question_vectors = networks.embedder.embed(*batch.questions, keys[0])
        question_vectors = networks.embedder.scaled(question_vectors)
        scores = relevance_scores("be,bre->br", question_vectors, batch.vectors)
        best_scores, best = jax.lax.top_k(
            scores, min(self.settings.reader_passages, scores.shape[1])
        )
        joint = Rows(*(_pick(part, best) for part in batch.joint))
        gold = _pick(batch.gold, best)
        flat = Rows(*(part.reshape(-1, part.shape[-1]) for part in joint))
        hidden = networks.reader.bert(*flat, keys[1])
        spans = networks.span_head.span_logits(hidden, flat.mask, flat.segments, self._max_answer)
        spans = spans.reshape(gold.shape)
        size = len(scores)
        batch_scores, positive, counted = _in_batch_scores(question_vectors, batch)
        loss, metrics = losses.open_qa_loss(
            batch_scores,
            positive,
            counted,
            (spans + best_scores[:, :, None, None]).reshape(size, -1),
            gold.reshape(size, -1),
            (spans > INVALID_SPAN_SCORE).reshape(size, -1),
        )
        return loss, metrics | losses.real_pieces(
            len(batch.questions.mask), batch.questions.mask, flat.mask
        )

    def weight(self, batch: QuestionBatch) -> Float[Array, ""]:
        """The number of questions; other questions' hits come from the same micro-batch only."""
        return jnp.float32(len(batch.hits))

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """No metrics: `realm eval` evaluates the export."""
        return {}


def _in_batch_scores(questions: Float[Array, "B E"], batch: QuestionBatch) -> tuple[Array, ...]:
    """Scores of each question with the hits of all questions, and two masks; each [B, B R].

    The first mask holds the question's own hits that contain its answer. The second holds the hits
    that count: its own, and those of other questions that are not among its own.
    """
    size, count, width = batch.vectors.shape
    scores = relevance_scores("be,ne->bn", questions, batch.vectors.reshape(-1, width))
    owner = jnp.repeat(jnp.arange(size), count)
    own = owner[None, :] == jnp.arange(size)[:, None]
    held = (batch.hits.reshape(-1)[None, :, None] == batch.hits[:, None, :]).any(-1)
    return scores, own & batch.has_answer.reshape(-1)[None, :], own | ~held


def _pick(part: Array, best: Array) -> Array:
    """part[b, best[b, t]] for arrays [B, R, ...]."""
    shape = best.shape + (1,) * (part.ndim - 2)
    return jnp.take_along_axis(part, best.reshape(shape), axis=1)
