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
    networks = stage.modules.bind(stage.modules.init(jax.random.key(0)))
    batch = jax.device_put(source.take(np.array([0])))
    _, metrics = stage.loss(networks, batch, None)
    assert metrics["answer_in_hits"] == 1
    assert metrics["answer_in_read"] == 0
    np.testing.assert_allclose(metrics["retriever_loss"], np.log(2), rtol=1e-5)
