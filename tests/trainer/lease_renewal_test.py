"""Both jobs renew their leases while their main thread works on something else."""

import os
import threading
import time
from functools import partial

import jax
import numpy as np
import pytest
from support.probes import random_probes
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import publish_index
from realm_jax.artifacts.snapshots import publish_snapshot
from realm_jax.index_builder import run as index_builder
from realm_jax.models.modules import Modules
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage import follow
from realm_jax.storage.layout import PUBLISHED_INDEX, SNAPSHOTS, RunDir
from realm_jax.storage.leases import Lease, leased
from realm_jax.trainer import index_manager
from realm_jax.trainer.index_manager import IndexManager

SHORT = partial(Lease, seconds=1.0)


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


def assert_renewed(run, reader, what, step):
    """The lease expires now, and is valid again soon."""
    path = run.leases / f"{reader}.json"
    os.utime(path, (1.0, 1.0))
    deadline = time.monotonic() + 20.0
    while step not in leased(run, what):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def renewals():
    return {thread for thread in threading.enumerate() if thread.name == "renewal"}


def test_trainer_keeps_its_index_during_a_long_step(run, monkeypatch):
    vectors = np.eye(4, 8, dtype=np.float32)
    arguments = (np.arange(4), vectors, {"w": np.zeros(1)}, {"corpus_hash": "c0ffee"}, "{}")
    publish_index(run, 0, ExactSearcher(vectors), *arguments)
    monkeypatch.setattr(index_manager, "Lease", SHORT)
    before = renewals()
    manager = IndexManager(
        run, tiny_config(refresh__mode="async"), {"c0ffee"}.__contains__, [], set
    )
    try:
        assert renewals() == before  # nothing is leased before the first index is opened
        manager.for_step(0)
        assert_renewed(run, "trainer", PUBLISHED_INDEX, 0)
    finally:
        manager.close()
    assert renewals() == before


def test_builder_keeps_its_snapshot_during_a_long_refresh(run, tiny, monkeypatch):
    config = tiny_config(tiny.folder, model__layers=1)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    parameters = jax.device_get(jax.jit(modules.init)(jax.random.key(0)))
    publish_snapshot(
        run, 2, parameters, config_lib.to_json(config), {}, probes=random_probes(config)
    )
    follow.mark_end(run)

    def long_refresh(*_):
        assert_renewed(run, "index_builder", SNAPSHOTS, 2)
        refreshed.append(True)

    refreshed = []
    monkeypatch.setattr(index_builder, "Lease", SHORT)
    monkeypatch.setattr(index_builder, "refresh", long_refresh)
    index_builder.run(str(run.root), 0.02, threading.Event())
    assert refreshed == [True]
