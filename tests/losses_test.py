"""Losses equal a NumPy reference, and the gradient equals the formula in REALM section 3.3."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax import losses

B, K, M, V = 3, 4, 5, 11
EXACT = {"rtol": 2e-5, "atol": 2e-6}


def of_numpy(function):
    """Returns `function` for NumPy arguments."""
    as_jax = lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x  # noqa: E731
    return lambda *arguments: function(*map(as_jax, arguments))


token_log_probs = of_numpy(losses.token_log_probs)
retrieval_log_prob = of_numpy(losses.retrieval_log_prob)
marginal_log_likelihood = of_numpy(losses.marginal_log_likelihood)
realm_loss = of_numpy(losses.realm_loss)
cosine_distance = of_numpy(losses.cosine_distance)
masked_lm_loss = of_numpy(losses.masked_lm_loss)
ict_loss = of_numpy(losses.ict_loss)
open_qa_loss = of_numpy(losses.open_qa_loss)
reader_warmup_loss = of_numpy(losses.reader_warmup_loss)


@pytest.fixture(autouse=True)
def strict_shapes():
    """Makes implicit rank promotion, for example of [B] to [B, K], an error."""
    with jax.numpy_rank_promotion("raise"):
        yield


def draw(masks=M):
    """Draws scores, log p(y_j|z,x) and weights, with 1 to `masks` masked positions per query."""
    rng = np.random.default_rng(masks)
    scores = rng.normal(size=(B, K)).astype(np.float32)
    logits = rng.normal(size=(B, K, masks, V)).astype(np.float32)
    targets = rng.integers(0, V, (B, K, masks)).astype(np.int32)
    weights = np.zeros((B, masks), np.float32)
    for query in range(B):
        weights[query, : 1 + query % masks] = 1.0
    return scores, np.asarray(token_log_probs(logits, targets)), weights


def reference_log_p(scores, token_log_p, weights, marginal):
    """Computes log p(y|x) with sums and products as in the paper."""
    p_z = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    p_y = np.exp(token_log_p.astype(np.float64))
    found = np.zeros(len(scores))
    for query, real in enumerate(weights > 0):
        if marginal == "paper":
            found[query] = np.log(sum(p_z[query] * p_y[query][:, real].prod(-1)))
        else:
            found[query] = np.log(p_z[query] @ p_y[query][:, real]).sum()
    return found


def test_token_log_probs_are_log_softmax_at_the_target():
    logits = np.random.default_rng(0).normal(size=(2, M, V)).astype(np.float32)
    targets = np.arange(2 * M, dtype=np.int32).reshape(2, M)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    picked = np.take_along_axis(softmax, targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(token_log_probs(logits, targets), np.log(picked), **EXACT)


def test_token_log_probs_of_bfloat16_logits_are_normalised_in_float32():
    logits = jnp.zeros((1, 1, 30_000), jnp.bfloat16)
    found = token_log_probs(logits, jnp.zeros((1, 1), jnp.int32))
    np.testing.assert_allclose(found, -np.log(30_000), rtol=1e-6)


@pytest.mark.parametrize("marginal", ["paper", "released"])
def test_marginal_equals_the_numpy_reference(marginal):
    scores, token_log_p, weights = draw()
    log_p_z = retrieval_log_prob(scores, np.ones((B, K), bool))
    found = marginal_log_likelihood(log_p_z, token_log_p, weights, marginal)
    np.testing.assert_allclose(
        found, reference_log_p(scores, token_log_p, weights, marginal), **EXACT
    )


def test_the_two_marginals_are_equal_only_for_one_masked_token():
    for masks, equal in ((1, True), (M, False)):
        scores, token_log_p, weights = draw(masks)
        paper, released = (
            reference_log_p(scores, token_log_p, weights, kind) for kind in ("paper", "released")
        )
        found = [
            realm_loss(scores, token_log_p, weights, np.ones((B, K), bool), kind)[0]
            for kind in ("paper", "released")
        ]
        assert np.isclose(*found, rtol=1e-6) == equal
        assert np.allclose(paper[1:], released[1:]) == equal


def score_gradient(scores, token_log_p, weights, marginal):
    """Gradient of the sum of log p(y|x) with respect to the scores."""

    def log_p(scores):
        log_p_z = retrieval_log_prob(scores, np.ones((B, K), bool))
        return marginal_log_likelihood(log_p_z, token_log_p, weights, marginal).sum()

    return jax.grad(log_p)(scores)


def test_gradient_of_the_scores_equals_the_formula_in_the_paper():
    """d log p(y|x) / d f(z) = r(z) p(z|x), r(z) = p(y|z,x) / p(y|x) - 1 (REALM section 3.3)."""
    scores, token_log_p, weights = draw()
    p_z = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    p_y_given_z = np.exp((token_log_p * weights[:, None, :]).sum(-1))
    p_y = (p_z * p_y_given_z).sum(-1, keepdims=True)
    r = p_y_given_z / p_y - 1
    np.testing.assert_allclose(
        score_gradient(scores, token_log_p, weights, "paper"), r * p_z, **EXACT
    )


def test_gradient_of_the_released_marginal_sums_the_formula_over_masked_tokens():
    scores, token_log_p, weights = draw()
    p_z = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    p_y_given_z = np.exp(token_log_p)
    p_y = (p_z[:, :, None] * p_y_given_z).sum(1, keepdims=True)
    per_piece = (p_y_given_z / p_y - 1) * p_z[:, :, None]
    expected = (per_piece * weights[:, None, :]).sum(-1)
    np.testing.assert_allclose(
        score_gradient(scores, token_log_p, weights, "released"), expected, **EXACT
    )


def test_realm_loss_is_the_mean_over_masked_tokens_and_not_over_queries():
    scores, token_log_p, weights = draw()
    loss, metrics = realm_loss(scores, token_log_p, weights, np.ones((B, K), bool), "paper")
    log_p = reference_log_p(scores, token_log_p, weights, "paper")
    np.testing.assert_allclose(loss, -log_p.sum() / weights.sum(), **EXACT)
    without = (token_log_p[:, 0] * weights).sum()
    np.testing.assert_allclose(
        metrics["retrieval_utility"], (log_p.sum() - without) / weights.sum(), **EXACT
    )
    null = np.exp(scores[:, 0]) / np.exp(scores).sum(-1)
    np.testing.assert_allclose(
        metrics["p_null"], (null * weights.sum(-1)).sum() / weights.sum(), **EXACT
    )


def test_metrics_of_a_batch_are_the_means_of_its_parts_weighted_with_their_masked_tokens():
    scores, token_log_p, weights = draw()
    assert len(set(weights.sum(-1))) > 1
    valid, tokens = np.ones((B, K), bool), weights.sum(-1)
    _, whole = realm_loss(scores, token_log_p, weights, valid, "paper")
    parts = [
        realm_loss(*(part[i : i + 1] for part in (scores, token_log_p, weights, valid)), "paper")[1]
        for i in range(B)
    ]
    for name, value in whole.items():
        mean = np.average([part[name] for part in parts], weights=tokens)
        np.testing.assert_allclose(value, mean, **EXACT, err_msg=name)


def test_an_invalid_candidate_has_no_probability_and_no_gradient():
    scores, token_log_p, weights = draw()
    valid = np.ones((B, K), bool)
    valid[:, 0] = valid[1, 3] = False

    def loss(scores, token_log_p):
        return realm_loss(scores, token_log_p, weights, valid, "paper")[0]

    by_score, by_piece = jax.grad(loss, argnums=(0, 1))(scores, token_log_p)
    assert not np.asarray(by_score)[~valid].any()
    assert not np.asarray(by_piece)[~valid].any()
    assert np.asarray(by_score)[valid].all()
    fewer = realm_loss(scores[:, 1:], token_log_p[:, 1:], weights, valid[:, 1:], "paper")
    np.testing.assert_allclose(loss(scores, token_log_p), fewer[0], **EXACT)


def test_padding_positions_do_not_change_the_loss():
    scores, token_log_p, weights = draw()
    other = np.where(weights[:, None, :] > 0, token_log_p, -7.0).astype(np.float32)
    for marginal in ("paper", "released"):
        valid = np.ones((B, K), bool)
        one = realm_loss(scores, token_log_p, weights, valid, marginal)[0]
        two = realm_loss(scores, other, weights, valid, marginal)[0]
        assert one == two


def test_pdist_changes_the_gradient_of_the_scores_and_not_of_the_reader():
    scores, token_log_p, weights = draw()
    valid = np.ones((B, K), bool)
    valid[1, 3] = False

    def gradients(retriever_loss):
        def loss(scores, token_log_p):
            return realm_loss(scores, token_log_p, weights, valid, "paper", retriever_loss)

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(scores, token_log_p)

    (by_score, by_piece), metrics = gradients("pdist")
    (_, reader), marginal = gradients("marginal")
    likelihoods = np.where(valid, (token_log_p * weights[:, None]).sum(-1), -np.inf)
    wanted = np.exp(likelihoods) / np.exp(likelihoods).sum(-1, keepdims=True)
    p_z = np.exp(retrieval_log_prob(scores, valid))
    np.testing.assert_allclose(by_score, (p_z - wanted) / weights.sum(), **EXACT)
    np.testing.assert_array_equal(by_piece, reader)
    assert metrics == marginal


def test_cosine_distance_is_a_mean_over_rows_and_moves_the_first_vectors_only():
    one = np.array([[[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]]], np.float32)
    other = np.array([[[2.0, 0.0], [-2.0, 0.0], [1.0, 0.0]]], np.float32)
    weights = np.array([[1.0, 0.5, 1.0]], np.float32)
    expected = (0.0 + 0.5 * (1.0 + np.sqrt(0.5)) + 1.0) / 2.5  # a vector of zeros has cosine 0
    np.testing.assert_allclose(cosine_distance(one, other, weights), expected, **EXACT)
    pair = (jnp.asarray(one), jnp.asarray(other), jnp.asarray(weights))
    moved, fixed = jax.grad(cosine_distance, argnums=(0, 1))(*pair)
    assert np.isfinite(moved).all() and np.abs(moved[0, 1]).max() > 0.05 and not fixed.any()


def test_an_unknown_marginal_is_an_error_with_its_name():
    scores, token_log_p, weights = draw()
    with pytest.raises(ValueError, match="'papper'"):
        marginal_log_likelihood(scores, token_log_p, weights, "papper")


def test_ict_loss_is_cross_entropy_over_the_batch():
    rng = np.random.default_rng(0)
    queries, passages = rng.normal(size=(2, 4, 6)).astype(np.float32)
    loss, metrics = ict_loss(queries, passages, np.arange(4))
    scores = queries @ passages.T
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(loss, -np.log(np.diagonal(p)).mean(), **EXACT)
    np.testing.assert_allclose(metrics["accuracy"], (p.argmax(-1) == np.arange(4)).mean())


def test_ict_does_not_use_a_copy_of_the_positive_passage_as_a_negative():
    rng = np.random.default_rng(1)
    queries, passages = rng.normal(size=(2, 3, 6)).astype(np.float32)
    twice = ict_loss(queries, passages, np.array([5, 5, 8]))[0]
    scores = queries @ passages.T
    scores[0, 1] = scores[1, 0] = -np.inf
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(twice, -np.log(np.diagonal(p)).mean(), **EXACT)


def test_open_qa_loss_is_minus_log_of_the_gold_probability():
    rng = np.random.default_rng(2)
    retriever, spans = (rng.normal(size=(2, 6)).astype(np.float32) for _ in range(2))
    answers = np.array([[1, 0, 1, 0, 0, 0], [0] * 6], bool)
    gold = np.array([[0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0]], bool)
    possible = np.ones((2, 6), bool)
    possible[:, 5] = False
    loss, metrics = open_qa_loss(retriever, answers, np.ones((2, 6), bool), spans, gold, possible)
    share = lambda scores, among: np.exp(scores[among]).sum()  # noqa: E731
    first = -np.log(share(retriever[0], answers[0]) / np.exp(retriever[0]).sum())
    read = [-np.log(share(spans[i], gold[i]) / share(spans[i], possible[i])) for i in range(2)]
    np.testing.assert_allclose(loss, (first + sum(read)) / 2, **EXACT)
    np.testing.assert_allclose(metrics["retriever_loss"], first / 2, **EXACT)
    np.testing.assert_allclose(metrics["reader_loss"], sum(read) / 2, **EXACT)
    assert (metrics["answer_in_hits"], metrics["answer_in_read"]) == (0.5, 1.0)


def test_a_question_without_a_found_answer_has_zero_loss_and_gradient():
    none = np.zeros((1, 4), bool)
    every = np.ones((1, 4), bool)

    def loss(scores):
        return open_qa_loss(scores, none, every, 2 * scores, none, every)[0]

    value, gradient = jax.value_and_grad(loss)(np.arange(4, dtype=np.float32)[None])
    assert value == 0 and not gradient.any()


def test_masked_lm_loss_averages_over_masked_positions_only():
    log_p = np.log(np.array([[0.5, 0.25], [0.125, 1e-9]], np.float32))
    weights = np.array([[1, 1], [1, 0]], np.float32)
    loss, _ = masked_lm_loss(log_p, weights)
    np.testing.assert_allclose(loss, np.log(2) * (1 + 2 + 3) / 3, rtol=1e-6)


def test_reader_warmup_loss_is_masked_lm_loss_plus_span_loss():
    """Row 0 has one correct span of two, row 1 has none, and row 2 has no masked span and is not
    counted. The third span of each row is invalid."""
    _, token_log_p, weights = draw()
    token_log_p = token_log_p[:, 0]
    scores = np.array([[1.0, -1.0, 9.0], [0.5, 0.2, 9.0], [3.0, 3.0, 9.0]], np.float32)
    gold = np.array([[True, False, False], [False] * 3, [False] * 3])
    possible = np.array([[True, True, False]] * 3)
    counted = np.array([True, True, False])
    expected = -np.log(
        [
            np.exp(1.0) / (1 + np.exp(1.0) + np.exp(-1.0)),
            1 / (1 + np.exp(0.5) + np.exp(0.2)),
        ]
    ).mean()
    loss, metrics = reader_warmup_loss(token_log_p, weights, scores, gold, possible, counted)
    mlm, _ = masked_lm_loss(token_log_p, weights)
    np.testing.assert_allclose(metrics["span_loss"], expected, **EXACT)
    np.testing.assert_allclose(metrics["mlm_loss"], mlm, **EXACT)
    np.testing.assert_allclose(loss, mlm + expected, **EXACT)


def test_reader_warmup_loss_of_an_empty_batch_is_zero_with_finite_gradients():
    zeros = jnp.zeros((B, M))
    none = jnp.zeros((B, 3), bool)

    def loss(scores):
        return losses.reader_warmup_loss(zeros, zeros, scores, none, none, none[:, 0])[0]

    value, gradient = jax.value_and_grad(loss)(jnp.ones((B, 3)))
    assert float(value) == 0.0
    np.testing.assert_array_equal(gradient, 0.0)
