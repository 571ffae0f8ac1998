"""Several builders of one run share the shards; one publishes; any of them may die or join."""

import os
import signal
import threading
import time

import jax
import numpy as np
import pytest
from support.processes import RealmProcess, environment
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import open_index
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.errors import RealmError
from realm_jax.index_builder import embed_corpus as embedding
from realm_jax.index_builder import run as index_builder
from realm_jax.index_builder.embed_corpus import embed_corpus
from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage import commit, files, follow
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.locks import Lock

PATIENCE = 600.0


@pytest.fixture
def run(tmp_path, tiny):
    """A run with one snapshot and a corpus of three shards."""
    config = tiny_config(tiny.folder, model__layers=1)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    parameters = jax.device_get(jax.jit(modules.init)(jax.random.key(0)))
    run = RunDir(tmp_path / "run")
    publish_snapshot(run, 2, parameters, config_lib.to_json(config), {})
    return run


def test_two_builders_embed_each_shard_once_and_publish_one_index(run, monkeypatch):
    snapshot, embedded = read_snapshot(run.snapshots / step_name(2)), []
    both_at_work = threading.Barrier(2, timeout=PATIENCE)
    embed_passages = Encoder.embed_passages

    def recorded(self, params, store, ids):
        embedded.append(int(ids[0]))
        if len(embedded) <= 2:
            both_at_work.wait()
        return embed_passages(self, params, store, ids)

    monkeypatch.setattr(Encoder, "embed_passages", recorded)
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


def embed(run, tiny, progress=lambda done: None):
    """Embeds the corpus as a builder does; it ends if another builder has published the index."""
    snapshot = read_snapshot(run.snapshots / step_name(2))
    config = config_lib.from_json(snapshot.config_json, "snapshot")
    encoder = Encoder(config, tiny.store.vocabulary.size)
    return embed_corpus(
        config,
        tiny.store,
        lambda ids: encoder.embed_passages(snapshot.params["embedder"], tiny.store, ids),
        run.shards(2),
        threading.Event(),
        progress,
        lambda: commit.is_published(run.published_index / step_name(2)),
    )


@pytest.mark.parametrize("moment", ["at its start", "between two shards", "within a shard"])
def test_a_late_builder_ends_if_another_deletes_the_shards(run, tiny, monkeypatch, moment):
    assert embed(run, tiny) is not None
    snapshot, finished = read_snapshot(run.snapshots / step_name(2)), []

    def finish(*_):
        if not finished:
            finished.append(True)
            assert index_builder.refresh(run, snapshot, threading.Event())

    open_shards, read_sealed = embedding.open_shards, files.read_sealed

    def open_late(*args):
        finish()
        return open_shards(*args)

    def read_late(path, **shape):
        if path.parent == run.shards(2) and path.suffix == ".json":
            finish()
        return read_sealed(path, **shape)

    if moment == "at its start":
        monkeypatch.setattr(embedding, "open_shards", open_late)
    elif moment == "within a shard":
        monkeypatch.setattr(files, "read_sealed", read_late)
    assert embed(run, tiny, finish) is None
    assert finished and not run.shards(2).exists()


def test_a_builder_continues_if_another_deletes_its_shard(run, tiny, monkeypatch):
    write_sealed, expected = files.write_sealed, np.array(embed(run, tiny))
    files.delete_tree(run.shards(2))

    def write_late(path, content):
        files.delete_tree(run.shards(2))
        write_sealed(path, content)

    monkeypatch.setattr(files, "write_sealed", write_late)
    np.testing.assert_array_equal(embed(run, tiny), expected)


def test_shards_of_abandoned_older_steps_are_deleted(run, monkeypatch):
    """Stopped after its first shard, a builder goes on at the newest snapshot."""
    written, embed_passages = read_snapshot(run.snapshots / step_name(2)), Encoder.embed_passages
    for step in (2, 4):
        stop = threading.Event()

        def one(self, params, store, ids, stop=stop):
            stop.set()
            return embed_passages(self, params, store, ids)

        monkeypatch.setattr(Encoder, "embed_passages", one)
        publish_snapshot(run, step, written.params, written.config_json, {})
        assert index_builder.run(str(run.root), 0.02, stop) == 0
    assert files.list_names(run.builder) == [step_name(2), step_name(4)]
    publish_snapshot(run, 6, written.params, written.config_json, {})
    follow.mark_end(run)
    assert index_builder.run(str(run.root), 0.02, threading.Event()) == 1
    assert files.list_names(run.builder) == []
    files.write_bytes(run.shards(6) / "shard_0000000000.npy", b"of a builder killed just then")
    assert index_builder.run(str(run.root), 0.02, threading.Event()) == 0
    assert files.list_names(run.builder) == []


def test_shards_of_a_newer_step_than_the_published_one_are_kept(run):
    newer = run.shards(4) / "shard_0000000000.npy"
    files.write_bytes(newer, b"of another builder")
    written = read_snapshot(run.snapshots / step_name(2))
    assert index_builder.refresh(run, written, threading.Event())
    assert newer.exists() and files.list_names(run.builder) == [step_name(4)]


def test_a_builder_at_an_older_step_ends_if_a_newer_one_is_published(run, monkeypatch):
    older = read_snapshot(run.snapshots / step_name(2))
    embed_passages, published = Encoder.embed_passages, []
    publish_snapshot(run, 4, older.params, older.config_json, {})
    newer = read_snapshot(run.snapshots / step_name(4))

    def overtaken(self, params, store, ids):
        if not published:
            published.append(4)
            assert index_builder.refresh(run, newer, threading.Event(), "index_builder-b")
        return embed_passages(self, params, store, ids)

    monkeypatch.setattr(Encoder, "embed_passages", overtaken)
    assert index_builder.refresh(run, older, threading.Event()) is None
    assert commit.steps(run.published_index) == [4] == published
    assert files.read_sealed(run.published_index / "LATEST.json") == {"step": 4}
    assert files.list_names(run.builder) == []


def test_a_builder_that_lost_the_publication_lock_does_not_publish(run, monkeypatch):
    snapshot, build = read_snapshot(run.snapshots / step_name(2)), index_builder.build_index

    def held_up(*given):
        later = Lock(run.shards(2), "finish", clock=lambda: time.time() + 120.0)
        assert later.acquire()
        made = build(*given)
        mine[0].renew()
        return made

    class Noted(Lock):
        def __init__(self, *given):
            super().__init__(*given)
            mine.append(self)

    mine = []
    monkeypatch.setattr(index_builder, "Lock", Noted)
    monkeypatch.setattr(index_builder, "build_index", held_up)
    with pytest.raises(RealmError, match="another process has taken over"):
        index_builder.refresh(run, snapshot, threading.Event())
    assert commit.steps(run.published_index) == []
    assert run.shards(2).exists()


def test_a_pointer_that_its_publisher_did_not_move_is_moved_by_another_builder(run):
    snapshot = read_snapshot(run.snapshots / step_name(2))
    assert index_builder.refresh(run, snapshot, threading.Event())
    commit.write_pointer(run.published_index, 0)
    files.delete_tree(run.shards(2))
    assert not index_builder.refresh(run, snapshot, threading.Event())
    assert files.read_sealed(run.published_index / "LATEST.json") == {"step": 2}


@pytest.mark.slow
def test_if_one_of_two_builders_is_killed_the_other_finishes(run, tmp_path):
    base = environment(tmp_path / "compiled")
    workers = []
    for name, failpoint in (("a", "shard.embedded:1=kill"), ("b", "")):
        (tmp_path / name).mkdir()
        more = base | ({"REALM_FAILPOINT": failpoint} if failpoint else {})
        arguments = ("index", f"--workdir={run.workdir}", f"--worker={name}")
        workers.append(RealmProcess(tmp_path / name, more, *arguments))
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
