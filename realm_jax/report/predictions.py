"""Predicts masked words of held-out sentences with and without retrieval (REALM, Table 3)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int32, Int64

from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.padding import fixed_size_batches
from realm_jax.data.rows import Rows, joint_rows
from realm_jax.inference.answerer import Answerer
from realm_jax.losses import (
    marginal_log_likelihood,
    marginalise_candidates,
    passage_log_likelihood,
    retrieval_log_prob,
)
from realm_jax.models.modules import Modules
from realm_jax.parallel.program import Program
from realm_jax.retrieval.host_retriever import HostRetriever

_BATCH = 16  # queries at a time


class Predictions(NamedTuple):
    """Predictions for B masked sentences; candidate 0 is the null passage."""

    candidates: Int64[Any, "B K"]  # passage ids
    valid: Bool[Any, "B K"]
    log_p_z: Float32[Any, "B K"]  # log p(z|x)
    log_p_y: Float32[Any, "B K"]  # log p(y|z,x) of the masked word pieces
    log_p: Float32[Any, "B"]  # log p(y|x)
    predicted: Int32[Any, "B M"]  # most probable word pieces with retrieval
    predicted_without_retrieval: Int32[Any, "B M"]  # with the null passage only


def predict(answerer: Answerer, text: MaskedText) -> Predictions:
    """Runs the pre-trained embedder and reader of an export on masked sentences."""
    size = len(text.source)
    parts = []
    forward = _Forward(answerer)
    for indices, _ in fixed_size_batches(size, _BATCH):
        parts.append(forward(jax.tree.map(lambda part, indices=indices: part[indices], text)))
    return Predictions(*(np.concatenate(column)[:size] for column in zip(*parts, strict=True)))


class _Forward:
    """The compiled forward pass of one batch."""

    def __init__(self, answerer: Answerer):
        self._a = answerer
        vocabulary = answerer.store.vocabulary.size
        self._modules = Modules(answerer.config.model, vocabulary, ("embedder", "reader"))
        self._rows = EmbedderRows(answerer.config, answerer.store.vocabulary)
        self._retriever = HostRetriever(answerer.config, vocabulary)
        networks = answerer.export.networks
        self._params = jax.device_put({n: networks[n] for n in ("embedder", "reader")})
        self._read = Program("report/read", self._forward)

    def __call__(self, text: MaskedText) -> Predictions:
        a = self._a
        queries = self._rows.queries(text.queries)
        chosen, valid = self._retriever.candidates(a.index, queries, text.source, a.store)
        passages = self._rows.passages(a.store, chosen, self._rows.passage)
        joint = joint_rows(text.queries, a.store, chosen, a.config.lengths.joint)
        embedded = text._replace(queries=queries)
        read = self._read(self._params, embedded, passages, joint, valid)
        return Predictions(chosen, valid, *map(np.asarray, read))

    def _forward(
        self, params: Any, text: MaskedText, passages: Rows, joint: Rows, valid: Any
    ) -> tuple[
        Float[Array, "B K"],
        Float[Array, "B K"],
        Float[Array, "B"],
        Int32[Array, "B M"],
        Int32[Array, "B M"],
    ]:
        networks = self._modules.bind(params)
        size, count, _ = joint.ids.shape
        embedder = networks.embedder
        embedded = embedder.embed(*text.queries)
        vectors = embedder.embed(*_flat(passages)).reshape(size, count, -1)
        scores = embedder.with_null_score(embedder.scores("be,bke->bk", embedded, vectors))
        log_p_z = retrieval_log_prob(scores, valid)
        positions = jnp.repeat(text.positions, count, axis=0)
        logits = networks.reader.mlm_logits(*_flat(joint), positions).astype(jnp.float32)
        all_log_p = jax.nn.log_softmax(logits, axis=-1).reshape(size, count, *logits.shape[1:])
        targets = text.targets[:, None, :, None]
        log_p = jnp.take_along_axis(all_log_p, targets, axis=-1)[..., 0]
        mixed = marginalise_candidates(log_p_z, all_log_p)
        return (
            log_p_z,
            passage_log_likelihood(log_p, text.weights),
            marginal_log_likelihood(log_p_z, log_p, text.weights, "paper"),
            mixed.argmax(-1).astype(jnp.int32),
            all_log_p[:, 0].argmax(-1).astype(jnp.int32),
        )


def _flat(rows: Rows) -> Rows:
    return Rows(*(part.reshape(-1, part.shape[-1]) for part in rows))


def is_right(text: MaskedText, predicted: Int32[np.ndarray, "B M"]) -> Bool[np.ndarray, "B"]:
    """Whether all masked word pieces of a sentence are predicted correctly."""
    return ((predicted == text.targets) | (text.weights == 0)).all(1)


def utility_by_rank(text: MaskedText, predictions: Predictions) -> list[tuple[float, float]]:
    """Computes retrieval utility in nats per word piece and mean p(z|x) for each rank.

    Utility is log p(y|z,x) - log p(y|null,x) of the passage at that rank (REALM, appendix D). It is
    averaged over the masked word pieces of all sentences that have a passage at that rank.
    """
    found = []
    for rank in range(1, predictions.valid.shape[1]):
        valid = predictions.valid[:, rank]
        if valid.any():
            gained = (predictions.log_p_y[:, rank] - predictions.log_p_y[:, 0])[valid].sum()
            p_z = np.exp(predictions.log_p_z[valid, rank]).mean()
            found.append((float(gained / text.weights[valid].sum()), float(p_z)))
    return found


def choose_examples(right: Bool[np.ndarray, "B"], count: int) -> list[int]:
    """Chooses sentence numbers at equal distances: half successes, half failures if possible."""
    failures, successes = np.flatnonzero(~right), np.flatnonzero(right)
    failure_count = min(len(failures), max(count // 2, count - len(successes)))
    chosen = [
        *_evenly(successes, min(count - failure_count, len(successes))),
        *_evenly(failures, failure_count),
    ]
    return [int(number) for number in chosen]


def _evenly(numbers: Int64[np.ndarray, "_"], count: int) -> Int64[np.ndarray, "_"]:
    return (
        numbers[np.linspace(0, len(numbers) - 1, count).round().astype(int)]
        if count
        else numbers[:0]
    )
