"""What the warm start hands on from stage to stage."""

import threading

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.errors import ConfigError
from realm_jax.storage.layout import RunDir
from realm_jax.trainer import run as trainer
from realm_jax.trainer.checkpoint import final_parameters


def bert_after(workdir, stage, network):
    _, trained = final_parameters(RunDir(workdir), stage)
    return trained[network]["bert"]


@pytest.mark.parametrize("told", [True, False])
def test_ict_begins_with_the_encoder_of_the_reader_where_it_is_told_to(tiny, tmp_path, told):
    config = tiny_config(
        tiny.folder,
        model__layers=1,
        stages__reader__steps=2,
        stages__ict__steps=1,
        stages__ict__learning_rate=0.0,
        stages__ict__from_reader=told,
        stages__realm__steps=0,
    )
    trainer.run(str(tmp_path), config, threading.Event())
    both = (bert_after(tmp_path, *of) for of in (("reader", "reader"), ("ict", "embedder")))
    same = jax.tree.leaves(jax.tree.map(np.array_equal, *both))
    assert all(same) if told else not any(same)


def test_there_must_be_a_reader_to_begin_with(tiny):
    with pytest.raises(ConfigError, match=r"stages\.ict\.from_reader"):
        tiny_config(tiny.folder, stages__ict__from_reader=True, stages__reader__steps=0)
