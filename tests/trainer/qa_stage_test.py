"""Stage `qa`: which hits are positives of the retriever and of the reader."""

import jax
import numpy as np
from support.tiny_corpus import tiny_config

from realm_jax.data.open_qa import QuestionSource
from realm_jax.data.question_checks import Question
from realm_jax.trainer.qa_stage import QaStage


def test_the_retriever_learns_from_answers_that_the_reader_cannot_select(tiny):
    # "1504", the answer in passage 4, has four word pieces.
    config = tiny_config(tiny.folder, model__layers=1, lengths__answer=3)
    vectors = np.ones((40, config.model.embedding), np.float32)
    questions, hits = [Question("when?", ("1504",))], np.array([[4, 5]])
    source = QuestionSource(questions, hits, vectors, tiny.store, config)
    stage = QaStage(config, tiny.store.vocabulary.size, source)
    metrics = metrics_of(stage, params_of(stage), source.take(np.array([0])))
    assert metrics["answer_in_hits"] == 1
    assert metrics["answer_in_read"] == 0
    np.testing.assert_allclose(metrics["retriever_loss"], np.log(2), rtol=1e-5)


def params_of(stage):
    return jax.jit(stage.modules.init)(jax.random.key(0))


def metrics_of(stage, params, batch):
    """Metrics of the loss without dropout."""
    loss = jax.jit(lambda params, batch: stage.loss(stage.modules.bind(params), batch, None)[1])
    return jax.device_get(loss(params, batch))


def embedded(stage, params, questions):
    embed = jax.jit(lambda params, rows: stage.modules.bind(params).embedder.embed(*rows))
    return jax.device_get(embed(params, questions))


def stage_of(tiny, numbers, hits, vectors, **changes):
    """A stage for these questions of the corpus, its params, and the batch of all of them."""
    config = tiny_config(tiny.folder, model__layers=1, **changes)
    questions = [tiny.questions[number] for number in numbers]
    source = QuestionSource(questions, np.array(hits), vectors, tiny.store, config)
    stage = QaStage(config, tiny.store.vocabulary.size, source)
    return stage, params_of(stage), source.take(np.arange(len(questions)))


def test_negatives_are_the_hits_of_the_whole_batch_and_positives_the_own_hits(tiny):
    """Passage 4 is a hit of both questions, and counts once for each."""
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    hits = [[5, 4, 7], [10, 4, 8]]
    stage, params, batch = stage_of(tiny, (4, 10), hits, vectors, model__temperature=0.5)
    metrics = metrics_of(stage, params, batch)
    questions = embedded(stage, params, batch.questions).astype(np.float64)
    lost = []
    for question, among in zip(questions, ([4, 5, 7, 8, 10], [10, 4, 8, 5, 7]), strict=True):
        scores = vectors[among] @ question / 0.5  # the passage with the answer is the first
        lost.append(np.log(np.exp(scores - scores[0]).sum()))
    assert metrics["answer_in_hits"] == 1
    np.testing.assert_allclose(metrics["retriever_loss"], np.mean(lost), rtol=1e-4)


def test_the_reader_reads_the_most_relevant_hits_and_adds_their_relevance_to_span_scores(tiny):
    """Only passage 4, the second hit, is relevant: spans of a second passage read have no share."""
    zeros, read = np.zeros((40, 8), np.float32), {}
    for count in (1, 2):
        given = (tiny, [4], [[5, 4, 7]], zeros.copy())
        stage, params, batch = stage_of(*given, stages__qa__reader_passages=count)
        batch.vectors[0, 1] = 10 * embedded(stage, params, batch.questions)[0]
        read[count] = metrics_of(stage, params, batch)
    assert read[1]["answer_in_read"] == read[2]["answer_in_read"] == 1
    np.testing.assert_allclose(read[2]["reader_loss"], read[1]["reader_loss"], rtol=1e-5)
    assert read[1]["reader_loss"] > 0.1
