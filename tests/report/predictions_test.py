"""Predictions of masked words with and without retrieval, and utility by rank."""

import numpy as np
import pytest
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.evaluate import closed_book
from realm_jax.report.predictions import Predictions, predict, utility_by_rank

NULL, TEMPERATURE = 1.0, 2.0


@pytest.fixture(scope="module")
def predicted(tiny, tmp_path_factory):
    """A run, masked sentences, and the predictions for them."""
    null = {"model__null_score": "fixed", "model__null_value": NULL, "model__init_stddev": 0.3}
    config = tiny_config(tiny.folder, model__temperature=TEMPERATURE, **null)
    workdir = tmp_path_factory.mktemp("predicted") / "run"
    write_finished_run(workdir, tiny, config)
    answerer = Answerer.open(str(workdir))
    text = MaskedTextSource(tiny.store, tiny.spans, config).first(20)
    return answerer, text, predict(answerer, text)


def test_p_z_is_the_softmax_of_scores_and_p_y_the_mixture_over_passages(predicted):
    answerer, text, found = predicted
    assert found.valid.all() and (found.candidates != text.source[:, None]).all()
    queries = answerer.networks.query_vectors("embedder", text.queries)
    vectors = answerer.index.vectors_of(found.candidates[:, 1:]).astype(np.float32)
    products = np.einsum("be,bke->bk", queries, vectors)
    scores = np.insert(products, 0, NULL, axis=1) / TEMPERATURE
    p_z = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(found.log_p_z), p_z, atol=0.02)  # vectors are float16
    mixed = np.exp(found.log_p_z + found.log_p_y).sum(1)
    np.testing.assert_allclose(np.exp(found.log_p), mixed, rtol=1e-4)


def test_words_predicted_without_retrieval_are_those_of_the_closed_book(predicted):
    answerer, text, found = predicted
    guessed = text._replace(targets=found.predicted_without_retrieval)
    assert closed_book(answerer, guessed) == 1.0
    assert (found.predicted != found.predicted_without_retrieval)[text.weights > 0].any()


def test_utility_by_rank_is_in_nats_per_masked_word_piece(predicted):
    _, text, found = predicted
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    given = Predictions(
        candidates=np.array([[-1, 4, 5], [-1, 6, -1]]),
        valid=np.array([[True, True, True], [True, True, False]]),
        log_p_z=np.log(np.array([[0.2, 0.5, 0.3], [0.4, 0.6, 1e-9]], np.float32)),
        log_p_y=np.array([[-6, -2, -5], [-3, -1, -9]], np.float32),
        log_p=found.log_p[:2],
        predicted=found.predicted[:2],
        predicted_without_retrieval=found.predicted[:2],
    )
    utilities = utility_by_rank(text._replace(weights=weights), given)
    np.testing.assert_allclose(utilities, [(6 / 3, 0.55), (1 / 2, 0.3)], rtol=1e-5)
