"""Fine-tuning on several hosts: process 0 alone decides whether it starts again."""

import threading

import numpy as np
import pytest
from support import finished_run
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.published_index import open_index
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import questions_hash
from realm_jax.errors import InputError, MismatchError
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import make_mesh
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.trainer import fine_tuning
from realm_jax.trainer.inputs import Inputs


class Reached(Exception):
    """The first search for questions, after all processes have agreed."""


@pytest.mark.parametrize(("leader", "left"), [(True, []), (False, [1])])
def test_only_process_0_deletes_the_checkpoints_of_an_earlier_index(
    tiny, tmp_path, monkeypatch, leader, left
):
    """Otherwise one host could delete what another one already reads."""
    config, run = tiny_config(tiny.folder, model__layers=1), RunDir(tmp_path)
    params = finished_run.random_params(config, tiny.store.vocabulary.size)
    finished_run.publish_random_index(run, tiny, config, params["embedder"])
    index = open_index(run.published_index / step_name(finished_run.STEP))
    write = lambda folder: files.write_bytes(folder / "it", b"state")  # noqa: E731
    fields = {"kind": "checkpoint", "questions": questions_hash(tiny.questions), "index_step": 2}
    commit.publish(run.checkpoints("qa"), 1, write, fields)
    text, agreed = MaskedTextSource(tiny.store, tiny.spans, config), []

    def gathered(topic, step, value=None):
        agreed.append((topic, step))
        return [value, value]

    def searched(*_):
        raise Reached

    monkeypatch.setattr(hosts, "is_leader", lambda: leader)
    monkeypatch.setattr(hosts, "all_gather", gathered)
    monkeypatch.setattr(fine_tuning, "_searched", searched)
    inputs, mesh = Inputs(tiny.store, text, text, tiny.questions), make_mesh(config.mesh)
    with pytest.raises(Reached):
        fine_tuning.fine_tune(run, config, inputs, mesh, params, index, threading.Event())
    assert commit.steps(run.checkpoints("qa")) == left
    assert agreed == [("fine-tuning start", finished_run.STEP)]  # the others wait for process 0


def test_fewer_steps_than_already_fine_tuned_are_refused(tiny, tmp_path):
    config, run = tiny_config(tiny.folder, stages__qa__steps=3), RunDir(tmp_path)
    params = finished_run.random_params(config, tiny.store.vocabulary.size)
    finished_run.publish_random_index(run, tiny, config, params["embedder"])
    index = open_index(run.published_index / step_name(finished_run.STEP))
    write = lambda folder: files.write_bytes(folder / "it", b"state")  # noqa: E731
    step = {"questions": questions_hash(tiny.questions), "index_step": finished_run.STEP}
    commit.publish(run.checkpoints("qa"), 5, write, {"kind": "checkpoint", **step})
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    inputs, mesh = Inputs(tiny.store, text, text, tiny.questions), make_mesh(config.mesh)
    with pytest.raises(InputError, match=r"fine-tuned for more steps[\s\S]*qa\.steps=5, or more"):
        fine_tuning.fine_tune(run, config, inputs, mesh, params, index, threading.Event())


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        ({"retriever": "bm25"}, r"another stages\.qa\.retriever"),
        ({"reader_from": "5eed"}, r"another stages\.qa\.reader_from[\s\S]*reader of this run"),
    ],
)
def test_fine_tuning_from_another_start_is_refused(tiny, tmp_path, monkeypatch, before, problem):
    """It once returned the networks of the earlier fine-tuning."""
    config, run = tiny_config(tiny.folder, stages__qa__steps=5), RunDir(tmp_path)
    params = finished_run.random_params(config, tiny.store.vocabulary.size)
    finished_run.publish_random_index(run, tiny, config, params["embedder"])
    index = open_index(run.published_index / step_name(finished_run.STEP))
    write = lambda folder: files.write_bytes(folder / "it", b"state")  # noqa: E731
    same = {"questions": questions_hash(tiny.questions), "index_step": finished_run.STEP}
    commit.publish(run.checkpoints("qa"), 5, write, {"kind": "checkpoint", **same, **before})
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    inputs, mesh = Inputs(tiny.store, text, text, tiny.questions), make_mesh(config.mesh)

    def searched(*_):
        raise Reached

    monkeypatch.setattr(fine_tuning, "_searched", searched)
    arguments = (run, config, inputs, mesh, params, index, threading.Event())
    with pytest.raises(MismatchError, match=problem):
        fine_tuning.fine_tune(*arguments)
    files.delete_tree(run.checkpoints("qa"))  # as the error says
    with pytest.raises(Reached):
        fine_tuning.fine_tune(*arguments)


def test_fine_tuning_reads_what_bm25_finds(tiny, tmp_path):
    config = tiny_config(tiny.folder, stages__qa__retriever="bm25")
    run = RunDir(tmp_path)
    params = finished_run.random_params(config, tiny.store.vocabulary.size)
    finished_run.publish_random_index(run, tiny, config, params["embedder"])
    index = open_index(run.published_index / step_name(finished_run.STEP))
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    inputs = Inputs(tiny.store, text, text, tiny.questions)
    batch = fine_tuning._searched(config, inputs, index).take(np.arange(len(tiny.questions)))
    best, _ = Bm25.open(tiny.store).search([question.text for question in tiny.questions], 6)
    np.testing.assert_array_equal(batch.hits, best)
    np.testing.assert_array_equal(batch.vectors, index.vectors_of(best).astype(np.float32))
