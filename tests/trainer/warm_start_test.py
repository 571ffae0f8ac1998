"""Params that a warm-start stage passes to the next stage."""

import json
import shutil
import threading

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.errors import ConfigError
from realm_jax.parallel.sharding import make_mesh
from realm_jax.storage.layout import RunDir
from realm_jax.trainer import run as trainer
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.nonfinite import write_batch
from realm_jax.trainer.replay import _params_before, _stages, replay


def bert_after(workdir, stage, module):
    _, trained = final_params(RunDir(workdir), stage)
    return trained[module]["bert"]


@pytest.mark.slow
@pytest.mark.parametrize("from_reader", [True, False])
def test_ict_starts_from_the_encoder_of_the_reader_if_configured(tiny, tmp_path, from_reader):
    config = tiny_config(
        tiny.folder,
        model__layers=1,
        stages__reader__steps=2,
        stages__ict__steps=1,
        stages__ict__learning_rate=0.0,
        stages__ict__from_reader=from_reader,
        stages__realm__steps=0,
    )
    trainer.run(str(tmp_path), config, threading.Event())
    both = (bert_after(tmp_path, *of) for of in (("reader", "reader"), ("ict", "embedder")))
    same = jax.tree.leaves(jax.tree.map(np.array_equal, *both))
    assert all(same) if from_reader else not any(same)
    shutil.rmtree(RunDir(tmp_path).checkpoints("ict"))
    path = RunDir(tmp_path).replays / "ict.npz"
    write_batch(path, "ict", 0, IctStage(config, tiny.store, jax.device_count()).batch(0))
    replayed = replay(str(tmp_path), config, path)["figures"]
    lines = (tmp_path / "logs" / "ict.jsonl").read_text().splitlines()
    [trained] = [one for one in map(json.loads, lines) if "loss" in one]
    assert replayed["loss"] == pytest.approx(trained["loss"], rel=1e-5)


@pytest.mark.slow
def test_a_replay_of_realm_without_ict_starts_from_the_encoder_of_the_reader(tiny, tmp_path):
    config = tiny_config(
        tiny.folder,
        model__layers=1,
        stages__reader__steps=2,
        stages__ict__steps=0,
        stages__ict__from_reader=True,
        stages__realm__steps=0,
    )
    trainer.run(str(tmp_path), config, threading.Event())
    run = RunDir(tmp_path)
    stage = _stages(run, config, open_inputs(config))["realm"]
    start = _params_before(run, config, stage, make_mesh(config.mesh))
    expected = bert_after(tmp_path, "reader", "reader")
    jax.tree.map(np.testing.assert_array_equal, start["embedder"]["bert"], expected)


def test_from_reader_needs_a_reader_stage(tiny):
    with pytest.raises(ConfigError, match=r"stages\.ict\.from_reader"):
        tiny_config(tiny.folder, stages__ict__from_reader=True, stages__reader__steps=0)
