"""A run finds the indexes that it needs to resume and to answer, however long it was down."""

import os
import threading

import jax
import numpy as np
import pytest
from support.probes import random_probes
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.export import publish_export
from realm_jax.artifacts.required import read_swaps, required_indexes
from realm_jax.artifacts.snapshots import publish_snapshot
from realm_jax.index_builder import run as index_builder
from realm_jax.models.modules import Modules
from realm_jax.storage import commit, files, follow
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir
from realm_jax.storage.leases import SECONDS, Lease, retain
from realm_jax.storage.logs import Log

ASYNC = tiny_config(refresh__mode="async").refresh
SYNC = tiny_config(refresh__mode="sync", refresh__every=2).refresh


def publish_indexes(run, *steps):
    for step in steps:
        write = lambda folder: files.write_bytes(folder / "it", b"index")  # noqa: E731
        commit.publish(run.published_index, step, write, {"kind": "published_index"})


def publish_checkpoint(run, step, swaps):
    write = lambda folder: files.write_bytes(folder / "it", b"state")  # noqa: E731
    fields = {"kind": "checkpoint", "swaps": swaps}
    commit.publish(run.checkpoints("realm"), step, write, fields)


@pytest.fixture
def run(tmp_path):
    """Checkpoints 5 and 9 were saved with the indexes 2 and 6 in use; then came a swap to 8."""
    run = RunDir(tmp_path)
    publish_indexes(run, 0, 2, 4, 6, 8, 10, 12, 14)
    publish_checkpoint(run, 5, [(0, 0), (3, 2)])
    publish_checkpoint(run, 9, [(0, 0), (3, 2), (7, 6)])
    for step, index in ((0, 0), (3, 2), (7, 6), (10, 8)):
        Log(run.swaps).append({"step": step, "index_step": index})
    return run


def test_indexes_of_checkpoints_of_later_swaps_and_of_the_export_are_required(run):
    assert read_swaps(run) == [(0, 0), (3, 2), (7, 6), (10, 8)]
    assert required_indexes(run, ASYNC) == {2, 6, 8}
    assert required_indexes(run, SYNC) == {2, 4, 6, 8, 10, 12, 14}
    publish_export(run, 9, 4, {"embedder": {"w": np.zeros(1)}}, "{}")
    assert required_indexes(run, ASYNC) == {2, 4, 6, 8}
    assert required_indexes(RunDir(run.root / "nothing"), ASYNC) == set()


def test_all_swaps_that_a_resumed_run_repeats_are_required(tmp_path):
    run = RunDir(tmp_path)
    publish_indexes(run, 0, 2, 4, 6, 8)
    for step, index in ((0, 0), (3, 2)):
        Log(run.swaps).append({"step": step, "index_step": index})
    assert required_indexes(run, ASYNC) == {0, 2}  # without a checkpoint, it starts at step 0
    publish_checkpoint(run, 5, [(0, 0), (3, 2)])
    for step, index in ((5, 4), (7, 6)):  # the first is later than the checkpoint of its step
        Log(run.swaps).append({"step": step, "index_step": index})
    assert required_indexes(run, ASYNC) == {2, 4, 6}
    publish_checkpoint(run, 9, [(0, 0), (3, 2), (5, 4), (7, 6)])
    assert required_indexes(run, ASYNC) == {2, 4, 6}  # if checkpoint 9 is damaged, 5 needs all


def test_a_swap_replaces_those_of_later_steps_that_a_resumed_run_did_not_repeat(run):
    """After the second checkpoint, the index of step 8 was deleted, and the run resumed at 9."""
    Log(run.swaps).append({"step": 12, "index_step": 10})
    publish_checkpoint(run, 10, [(0, 0), (3, 2), (7, 6), (12, 10)])  # a replay knows later swaps
    Log(run.swaps).append({"step": 11, "index_step": 10})
    assert read_swaps(run) == [(0, 0), (3, 2), (7, 6), (10, 8), (11, 10)]
    Log(run.swaps).append({"step": 10, "index_step": 12})
    assert read_swaps(run) == [(0, 0), (3, 2), (7, 6), (10, 12)]


def test_retention_keeps_required_indexes_after_the_lease_has_expired(run):
    lease = Lease(run, "trainer")
    lease.hold({PUBLISHED_INDEX: [2, 6, 8, 10]})
    long_ago = lease.path.stat().mtime - SECONDS - 60.0
    os.utime(lease.path, (long_ago, long_ago))
    required = required_indexes(run, ASYNC)
    assert retain(run, PUBLISHED_INDEX, 1, required=required) == [0, 4, 10, 12]
    assert commit.steps(run.published_index) == [2, 6, 8, 14]


def test_builder_keeps_the_index_of_a_checkpoint_while_the_trainer_is_down(tiny, tmp_path):
    settings = {"model__layers": 1, "refresh__keep": 1, "refresh__mode": "async"}
    run, config = RunDir(tmp_path), tiny_config(tiny.folder, **settings)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    parameters = jax.device_get(jax.jit(modules.init)(jax.random.key(0)))
    follow.mark_end(run)  # the builder ends after the newest snapshot
    for step in (2, 4, 6):
        publish_snapshot(
            run, step, parameters, config_lib.to_json(config), {}, probes=random_probes(config)
        )
        assert index_builder.run(str(run.root), 0.02, threading.Event()) == 1
        if step == 2:
            publish_checkpoint(run, 3, [(0, 0), (2, 2)])
    assert commit.steps(run.published_index) == [2, 6]
