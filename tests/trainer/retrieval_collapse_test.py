"""What the trainer says once the null passage has all the weight."""

import pytest
from support.finished_run import STEP, publish_random_index, random_params
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.storage.layout import RunDir
from realm_jax.trainer import realm_stage
from realm_jax.trainer.index_manager import IndexManager


@pytest.fixture
def evaluated(tiny, tmp_path):
    """Evaluates a stage with an index and random networks, as often as it is asked to."""
    config = tiny_config(tiny.folder)
    run, text = RunDir(tmp_path), MaskedTextSource(tiny.store, tiny.spans, config)
    networks = random_params(config, tiny.store.vocabulary.size)
    publish_random_index(run, tiny, config, networks["embedder"])
    index = IndexManager(run, config, tiny.store.corpus_hash, [], set)
    searched = index.wait_for(STEP)
    stage = realm_stage.RealmStage(config, tiny.store, text, text, index)
    parameters = {name: networks[name] for name in ("embedder", "reader")}
    yield lambda: stage.evaluate_with(searched, parameters)
    stage.close()


def test_a_share_of_the_null_passage_is_no_reason_to_speak(evaluated, caplog):
    assert 0.0 < evaluated()["held_out_p_null"] < 0.95
    assert not caplog.messages


def test_retrieval_given_up_is_said_once(evaluated, caplog, monkeypatch):
    """Random networks give the null passage a share; where the line is drawn is moved below it."""
    monkeypatch.setattr(realm_stage, "COLLAPSE_THRESHOLD", 0.01)
    evaluated()
    evaluated()
    [said] = caplog.messages
    assert "retrieval has collapsed" in said and "retrieval.candidates" in said
