"""The warning about collapsed retrieval."""

import pytest
from support.finished_run import STEP, publish_random_index, random_params
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.parallel.sharding import one_device_mesh
from realm_jax.storage.layout import RunDir
from realm_jax.trainer import realm_stage
from realm_jax.trainer.evaluation import Evaluation
from realm_jax.trainer.index_manager import IndexManager


@pytest.fixture
def evaluated(tiny, tmp_path):
    """A function that evaluates a stage with random params on a published index."""
    config = tiny_config(tiny.folder)
    run, text = RunDir(tmp_path), MaskedTextSource(tiny.store, tiny.spans, config)
    networks = random_params(config, tiny.store.vocabulary.size)
    publish_random_index(run, tiny, config, networks["embedder"])
    index = IndexManager(run, config, {tiny.store.corpus_hash}.__contains__, [], set)
    searched = index.wait_for(STEP)
    stage = realm_stage.RealmStage(config, tiny.store, text, text, index)
    parameters = {name: networks[name] for name in ("embedder", "reader")}
    evaluation = Evaluation(config, stage, one_device_mesh())
    yield lambda: stage.evaluate_with(searched, 1, parameters, evaluation)
    stage.close()


def test_a_moderate_weight_of_the_null_passage_is_not_warned_about(evaluated, caplog):
    assert 0.0 < evaluated()["held_out_p_null"] < 0.95
    assert not caplog.messages


def test_collapsed_retrieval_is_warned_about_once(evaluated, caplog, monkeypatch):
    """The threshold is lowered below the weight that random params give the null passage."""
    monkeypatch.setattr(realm_stage, "COLLAPSE_THRESHOLD", 0.01)
    evaluated()
    evaluated()
    [warning] = caplog.messages
    assert "retrieval has collapsed" in warning and "retrieval.candidates" in warning
