"""Loss functions of all training stages: arrays -> (loss, metrics). Every loss is in nats.

Axes: B queries, K candidates, M masked positions, V vocabulary, E embedding, S spans, R hits.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from realm_jax.models.operations import relevance_scores

# Log probability of entries that are excluded from a softmax; finite, so gradients stay finite.
EXCLUDED_LOG_PROB = -1e9


def token_log_probs(
    logits: Float[Array, "*rows M V"], targets: Int[Array, "*rows M"]
) -> Float[Array, "*rows M"]:
    """log p(y_j) of the target tokens, in float32; bfloat16 logits are converted first."""
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return picked - jax.nn.logsumexp(logits, axis=-1)


def retrieval_log_prob(
    scores: Float[Array, "B K"], valid: Bool[Array, "B K"]
) -> Float[Array, "B K"]:
    """log p(z|x): log-softmax of the relevance scores over the candidates (REALM section 3.1).

    Args:
      scores: f(x, z).
      valid: False on candidates to exclude.
    """
    return jax.nn.log_softmax(jnp.where(valid, scores, EXCLUDED_LOG_PROB), axis=-1)


def passage_log_likelihood(
    token_log_p: Float[Any, "B K M"], weights: Float[Any, "B M"]
) -> Float[Any, "B K"]:
    """log p(y|z,x): the sum of log p(y_j|z,x) over the masked positions (REALM section 3.1).

    Args:
      token_log_p: log p(y_j|z,x), a JAX or numpy array.
      weights: 1 on real masked positions, 0 on padding.
    """
    return (token_log_p * weights[:, None, :]).sum(-1)


def marginalise_candidates(
    log_p_z: Float[Array, "B K"], log_p: Float[Array, "B K *rest"]
) -> Float[Array, "B *rest"]:
    """log sum_z p(z|x) p(.|z,x): the sum over candidates of REALM equation 1.

    Args:
      log_p_z: log p(z|x).
      log_p: log probability of anything given each candidate.
    """
    extra = (1,) * (log_p.ndim - log_p_z.ndim)
    return jax.nn.logsumexp(log_p_z.reshape(*log_p_z.shape, *extra) + log_p, axis=1)


def marginal_log_likelihood(
    log_p_z: Float[Array, "B K"],
    token_log_p: Float[Array, "B K M"],
    weights: Float[Array, "B M"],
    marginal: str,
) -> Float[Array, "B"]:
    """log p(y|x) of the masked tokens of each query.

    Args:
      log_p_z: log p(z|x) over the candidates.
      token_log_p: log p(y_j|z,x).
      weights: 1 on real masked positions, 0 on padding.
      marginal: `paper` for log sum_z p(z|x) prod_j p(y_j|z,x) (equation 1 with section 3.1's
        product over positions); `released` for sum_j log sum_z p(z|x) p(y_j|z,x).
    """
    if marginal == "paper":
        return marginalise_candidates(log_p_z, passage_log_likelihood(token_log_p, weights))
    if marginal == "released":
        return (marginalise_candidates(log_p_z, token_log_p) * weights).sum(-1)
    raise ValueError(f"marginal: expected 'paper' or 'released', got {marginal!r}")


def real_pieces(queries: int, *masks: Bool[Array, "..."]) -> dict[str, Float[Array, ""]]:
    """Metrics of every stage: non-padding tokens per query, and the share of padding.

    Args:
      queries: B.
      masks: token masks of all rows that the networks read; True on real tokens.

    Returns:
      `real_pieces`, tokens per query, and `padding_share`, a fraction of all positions.
    """
    total = jnp.stack([mask.sum(dtype=jnp.float32) for mask in masks]).sum()
    positions = sum(mask.size for mask in masks)
    return {"real_pieces": total / queries, "padding_share": 1.0 - total / positions}


def realm_loss(
    scores: Float[Array, "B K"],
    token_log_p: Float[Array, "B K M"],
    weights: Float[Array, "B M"],
    valid: Bool[Array, "B K"],
    marginal: str,
    retriever_loss: str = "marginal",
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Negative marginal log-likelihood per masked token (REALM section 3.3), and metrics.

    Args:
      scores: relevance f(x, z) of the candidates; candidate 0 is the null passage.
      token_log_p: log p(y_j|z,x).
      weights: 1 on real masked positions, 0 on padding.
      valid: False on candidates to exclude.
      marginal: see `marginal_log_likelihood`.
      retriever_loss: loss of the retriever. `marginal`: -log p(y|x), as in the paper; because the
        reader sees one passage at a time, EMDR2's loss has the same gradients. `pdist`: perplexity
        distillation (Izacard et al., 2022), KL(softmax of log p(y|z,x) || p(z|x)). The reader
        learns from -log p(y|x) in both cases.

    Returns:
      The loss to minimise and the metrics: `loss`, -log p(y|x) for either `retriever_loss`;
      `retrieval_utility`, log p(y|x) - log p(y|null,x) (REALM appendix D); `p_null`, p(z|x) of the
      null passage. All are means over masked tokens, so means over batches can be weighted with
      the number of these; loss and utility are in nats.
    """
    log_p_z = retrieval_log_prob(scores, valid)
    chosen = log_p_z if retriever_loss == "marginal" else jax.lax.stop_gradient(log_p_z)
    log_p = marginal_log_likelihood(chosen, token_log_p, weights, marginal)
    tokens = jnp.maximum(weights.sum(), 1.0)
    null_log_p = (token_log_p[:, 0] * weights).sum(-1)
    loss = -log_p.sum() / tokens
    metrics = {
        "loss": loss,
        "retrieval_utility": (log_p - null_log_p).sum() / tokens,
        "p_null": (jnp.exp(log_p_z[:, 0]) * weights.sum(-1)).sum() / tokens,
    }
    if retriever_loss == "pdist":
        likelihoods = jax.lax.stop_gradient(passage_log_likelihood(token_log_p, weights))
        loss += _divergence(retrieval_log_prob(likelihoods, valid), log_p_z).sum() / tokens
    return loss, metrics


def cosine_distance(
    vectors: Float[Array, "*rows E"],
    others: Float[Array, "*rows E"],
    weights: Float[Array, "*rows"],
) -> Float[Array, ""]:
    """The weighted mean over rows of 1 - cosine; gradients reach `vectors` only.

    The cosine of a vector of zeros is 0, and its gradient is finite.
    """
    fixed = jax.lax.stop_gradient(others)
    distances = optax.losses.cosine_distance(vectors, fixed, epsilon=1e-6)
    return (weights * distances).sum() / weights.sum()


def _divergence(log_p: Float[Array, "B K"], log_q: Float[Array, "B K"]) -> Float[Array, "B"]:
    """KL(p || q) in nats; candidates excluded from both distributions contribute 0."""
    return (jnp.exp(log_p) * (log_p - log_q)).sum(-1)


def masked_lm_loss(
    token_log_p: Float[Array, "B M"], weights: Float[Array, "B M"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Cross-entropy per masked token (BERT, Devlin et al., 2019).

    Args:
      token_log_p: log p(y_j|x).
      weights: 1 on real masked positions, 0 on padding.
    """
    loss = -(token_log_p * weights).sum() / jnp.maximum(weights.sum(), 1.0)
    return loss, {"loss": loss}


def reader_warmup_loss(
    token_log_p: Float[Array, "B M"],
    weights: Float[Array, "B M"],
    span_scores: Float[Array, "B S"],
    gold: Bool[Array, "B S"],
    possible: Bool[Array, "B S"],
    counted: Bool[Array, "B"],
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Masked-LM loss plus the loss of finding the masked span in the passage of the same row.

    "Not in this passage" is an additional class with score 0. This makes span scores of different
    passages comparable, which open QA needs.

    Args:
      token_log_p: log p(y_j|z,x).
      weights: 1 on the masked positions to predict, 0 elsewhere.
      span_scores: scores of all spans of each passage.
      gold: True on spans equal to the masked text; all False if the passage does not contain it.
      possible: True on spans that lie inside the passage.
      counted: rows with exactly one masked span; only these have a span loss.
    """
    mlm, _ = masked_lm_loss(token_log_p, weights)
    absent = ~gold.any(-1, keepdims=True)
    scores = jnp.concatenate([jnp.zeros((len(gold), 1)), span_scores], axis=1)
    chosen, _ = positive_log_likelihood(
        scores,
        jnp.concatenate([absent, gold], axis=1),
        jnp.concatenate([jnp.ones_like(absent), possible], axis=1),
    )
    span = -(chosen * counted).sum() / jnp.maximum(counted.sum(), 1)
    return mlm + span, {"loss": mlm + span, "mlm_loss": mlm, "span_loss": span}


def ict_loss(
    queries: Float[Array, "B E"], passages: Float[Array, "B E"], ids: Int[Array, "B"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Inverse cloze task: in-batch softmax of each sentence over all passages (ORQA section 5).

    If a passage occurs twice in the batch, its other copy is excluded from the softmax.

    Args:
      queries: vectors of the sentences, divided by the temperature.
      passages: vectors of the passages; row i is the positive of query i.
      ids: passage ids.
    """
    scores = relevance_scores("be,ce->bc", queries, passages)
    diagonal = jnp.eye(len(ids), dtype=bool)
    duplicate = (ids[:, None] == ids[None, :]) & ~diagonal
    log_p = jax.nn.log_softmax(jnp.where(duplicate, EXCLUDED_LOG_PROB, scores), axis=-1)
    loss = -jnp.diagonal(log_p).mean()
    accuracy = (log_p.argmax(-1) == jnp.arange(len(ids))).mean()
    return loss, {"loss": loss, "accuracy": accuracy}


def positive_log_likelihood(
    scores: Float[Array, "B N"], positive: Bool[Array, "B N"], possible: Bool[Array, "B N"]
) -> tuple[Float[Array, "B"], Bool[Array, "B"]]:
    """Log of the softmax mass on the positives of each query (ORQA section 4).

    Args:
      scores: logits of N items.
      positive: True on correct items.
      possible: True on items that take part in the softmax.

    Returns:
      The log-likelihoods, and whether each query has a positive. A query without one has
      log-likelihood 0 and therefore no gradient.
    """
    any_positive = (positive & possible).any(-1)
    log_p = jax.nn.log_softmax(jnp.where(possible, scores, EXCLUDED_LOG_PROB), axis=-1)
    of_positives = jax.nn.logsumexp(
        jnp.where(positive & possible, log_p, EXCLUDED_LOG_PROB), axis=-1
    )
    return jnp.where(any_positive, of_positives, 0.0), any_positive


def open_qa_loss(
    retriever_scores: Float[Array, "B R"],
    has_answer: Bool[Array, "B R"],
    retrieved: Bool[Array, "B R"],
    span_scores: Float[Array, "B S"],
    gold: Bool[Array, "B S"],
    possible: Bool[Array, "B S"],
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Reader loss over spans plus retriever loss over hits, per question (ORQA section 4).

    Args:
      retriever_scores: relevance scores of the hits.
      has_answer: True on hits that contain an answer.
      retrieved: True on hits that count for the query.
      span_scores: span score + relevance score of every span of the passages read.
      gold: True on spans that are an answer.
      possible: True on spans that lie inside a passage body.

    Returns:
      The loss per question, and the metrics: `reader_loss` and `retriever_loss`, its two parts, to
      which a question without a positive adds 0; `answer_in_read` and `answer_in_hits`, the shares
      of the questions with a positive.
    """
    reader, readable = positive_log_likelihood(span_scores, gold, possible)
    retriever, reachable = positive_log_likelihood(retriever_scores, has_answer, retrieved)
    loss = -(reader + retriever).mean()
    return loss, {
        "loss": loss,
        "reader_loss": -reader.mean(),
        "retriever_loss": -retriever.mean(),
        "answer_in_read": readable.mean(dtype=jnp.float32),
        "answer_in_hits": reachable.mean(dtype=jnp.float32),
    }
