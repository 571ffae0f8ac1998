"""Evaluation searches the index of the last finished step, however far batches are prefetched."""

import pytest
from support import finished_run
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.parallel.sharding import one_device_mesh
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.evaluation import Evaluation
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.prefetch import AHEAD
from realm_jax.trainer.realm_stage import RealmStage


@pytest.fixture
def stage(tiny, tmp_path):
    """A stage in sync mode; the indexes of steps 0 and 3 are published."""
    config = tiny_config(tiny.folder, refresh__every=3)
    run, text = RunDir(tmp_path), MaskedTextSource(tiny.store, tiny.spans, config)
    params = finished_run.random_params(config, tiny.store.vocabulary.size)
    for step in (0, 3):
        finished_run.publish_random_index(run, tiny, config, params["embedder"], step=step)
    index = IndexManager(run, config, {tiny.store.corpus_hash}.__contains__, [], set)
    stage = RealmStage(config, tiny.store, text, text, index)
    yield stage
    stage.close()


def test_evaluation_is_not_moved_to_a_newer_index_by_prefetched_batches(stage, monkeypatch):
    searched = []

    def evaluate_with(index, *_):
        searched.append(index.step)
        return {}

    monkeypatch.setattr(stage, "evaluate_with", evaluate_with)
    evaluation = Evaluation(stage._config, stage, one_device_mesh())
    for step in range(3):
        stage.batch(step)
    for step in range(3, 3 + AHEAD + 1):  # as far as the prefetch thread may be at evaluation 3
        stage.batch(step)
        stage.evaluate(3, {}, evaluation)
    stage.evaluate(4, {}, evaluation)
    assert searched == [0] * (AHEAD + 1) + [3]
