"""Several builders of one run: they share the shards, one finishes, any may die or join."""

import os
import signal
import threading

import jax
import numpy as np
import pytest

from realm_jax import config as config_lib
from realm_jax.exchange import commit, files, follow
from realm_jax.exchange.layout import RunDir, step_name
from realm_jax.exchange.published_index import open_index
from realm_jax.exchange.snapshots import publish_snapshot, read_snapshot
from realm_jax.index_builder import run as index_builder
from realm_jax.models.modules import Modules
from realm_jax.search.passage_vectors import PassageEmbedder
from realm_jax.testing.fakes import tiny_config
from realm_jax.testing.processes import Command, environment

PATIENCE = 600.0


@pytest.fixture
def run(tmp_path, tiny):
    """A run with one snapshot and three shards of corpus."""
    config = tiny_config(tiny.folder, model__layers=1)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    parameters = jax.device_get(jax.jit(modules.init)(jax.random.key(0)))
    run = RunDir(tmp_path / "run")
    publish_snapshot(run, 2, parameters, config_lib.to_json(config), {})
    return run


def test_two_builders_embed_each_shard_once_and_publish_one_index(run, monkeypatch):
    snapshot, embedded = read_snapshot(run.snapshots / step_name(2)), []
    both_at_work = threading.Barrier(2, timeout=PATIENCE)
    vectors = PassageEmbedder.vectors

    def noted(self, numbers):
        embedded.append(int(numbers[0]))
        if len(embedded) <= 2:
            both_at_work.wait()
        return vectors(self, numbers)

    monkeypatch.setattr(PassageEmbedder, "vectors", noted)
    published = []
    threads = [
        threading.Thread(
            target=lambda name=name: published.append(
                index_builder.refresh(run, snapshot, threading.Event(), f"index_builder-{name}")
            )
        )
        for name in "ab"
    ]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE) for thread in threads]
    assert sorted(embedded) == [0, 16, 32]
    assert sorted(figures is None for figures in published) == [False, True]
    assert len(open_index(run.published_index / step_name(2)).rows) == 40
    assert not run.shards(2).exists()


def test_a_pointer_that_its_publisher_could_not_move_is_moved(run):
    snapshot = read_snapshot(run.snapshots / step_name(2))
    assert index_builder.refresh(run, snapshot, threading.Event())
    commit.write_pointer(run.published_index, 0)
    files.delete_tree(run.shards(2))
    assert not index_builder.refresh(run, snapshot, threading.Event())
    assert files.read_sealed(run.published_index / "LATEST.json") == {"step": 2}


@pytest.mark.slow
def test_one_of_two_builders_is_killed_and_the_other_finishes(run, tmp_path):
    base = environment(tmp_path / "compiled")
    workers = []
    for name, failpoint in (("a", "shard.embedded:1=kill"), ("b", "")):
        (tmp_path / name).mkdir()
        more = base | ({"REALM_FAILPOINT": failpoint} if failpoint else {})
        arguments = ("index", f"--workdir={run.workdir}", f"--worker={name}")
        workers.append(Command(tmp_path / name, more, *arguments))
        if name == "a":
            assert workers[0].process.wait(PATIENCE) == -signal.SIGKILL
    try:
        workers[1].until(lambda: commit.is_published(run.published_index / step_name(2)), "index")
        follow.mark_end(run)
        workers[1].wait(0)
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                os.killpg(worker.process.pid, signal.SIGKILL)
    assert np.isfinite(open_index(run.published_index / step_name(2)).vectors).all()
