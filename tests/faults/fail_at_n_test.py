"""Every file operation of a publication fails once, in turn: readers see the old step or the new.

N = 1, 2, ... until nothing fails any more. After each failure what a reader opens is whole, and the
same call again succeeds.
"""

import itertools
import time

import jax
import numpy as np
import pytest

from realm_jax.exchange import commit, files, follow, leases
from realm_jax.exchange.check import check
from realm_jax.exchange.export import publish_export, read_export
from realm_jax.exchange.layout import RunDir, step_name
from realm_jax.exchange.published_index import open_index, publish_index
from realm_jax.exchange.snapshots import publish_snapshot, read_snapshot
from realm_jax.failpoints import armed
from realm_jax.search.exact_searcher import ExactSearcher
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.state import TrainState

FORM = "fail at N"
ROWS, DIMS = 12, 4
OLD, NEW = 10, 20
ACTIONS = [
    pytest.param("error", marks=pytest.mark.faults),
    pytest.param("full", marks=pytest.mark.faults),
    "short",
]
MOST = 200  # operations; a publication has a few dozen


def parameters(step):
    """They tell their step everywhere, so that a mixture of two shows."""
    return {"a": {"w": np.full((3, 3), step, np.float32)}, "b": np.full(5, step, np.int32)}


def vectors(step):
    return np.random.default_rng(step).normal(size=(ROWS, DIMS)).astype(np.float32)


def snapshot(run, step):
    publish_snapshot(run, step, parameters(step), f'{{"step": {step}}}', {"config_hash": "c"})


def sound_snapshot(run, step):
    found = read_snapshot(run.snapshots / step_name(step))
    jax.tree.map(np.testing.assert_array_equal, found.params, parameters(step))
    assert found.config_json == f'{{"step": {step}}}'


def index(run, step):
    searcher = ExactSearcher(vectors(step))
    rows = np.arange(ROWS, dtype=np.int64)
    publish_index(run, step, searcher, rows, vectors(step), parameters(step), {}, str(step))


def sound_index(run, step):
    found = open_index(run.published_index / step_name(step))
    jax.tree.map(np.testing.assert_array_equal, found.query_params, parameters(step))
    np.testing.assert_array_equal(found.vectors, vectors(step).astype(np.float16))
    hits, _ = found.searcher.search(vectors(step)[:3], 1)
    nearest = (vectors(step)[:3] @ vectors(step).T).argmax(-1)
    assert hits[:, 0].tolist() == nearest.tolist()


def export(run, step):
    publish_export(run, step, OLD, parameters(step), str(step))


def sound_export(run, step):
    found = read_export(run)
    assert found.step == step
    jax.tree.map(np.testing.assert_array_equal, found.networks, parameters(step))


def train_state(step):
    return TrainState(np.int32(step), parameters(step), [np.full(4, step, np.float32)])


def checkpoint(run, step):
    Checkpoints(run, "realm", 9, f'{{"step": {step}}}').save(train_state(step), {})


def sound_checkpoint(run, step):
    like = jax.tree.map(jax.numpy.asarray, train_state(0))
    found, manifest = Checkpoints(run, "realm", 9, "").restore(like)
    jax.tree.map(np.testing.assert_array_equal, found, train_state(manifest["step"]))
    assert manifest["step"] == commit.latest(run.checkpoints("realm"))


KINDS = {
    "checkpoint": (checkpoint, sound_checkpoint, "checkpoints/realm"),
    "snapshot": (snapshot, sound_snapshot, "snapshots"),
    "index": (index, sound_index, "published_index"),
    "export": (export, sound_export, "export"),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_publication_that_fails_anywhere_leaves_the_old_step_or_the_new(
    tmp_path, kind, action, cases
):
    publish, assert_sound, folder = KINDS[kind]
    for n in itertools.count(1):
        run = RunDir(tmp_path / f"{n}")
        publish(run, OLD)
        try:
            with armed(f"file:{n}={action}"):
                publish(run, NEW)
            break
        except OSError as error:
            assert "failpoint file" in str(error)
        cases.append(n)
        seen = commit.latest(run.root / folder)
        assert seen in (OLD, NEW)
        assert_sound(run, seen)
        assert check(run.root)["problems"] == []
        publish(run, NEW)
        assert commit.latest(run.root / folder) == NEW
        assert_sound(run, NEW)
        assert n < MOST
    assert len(cases) > 10


@pytest.mark.parametrize("action", ACTIONS)
def test_retention_that_fails_anywhere_leaves_only_whole_steps(tmp_path, action, cases):
    for n in itertools.count(1):
        run = RunDir(tmp_path / f"{n}")
        for step in (1, 2, 3):
            snapshot(run, step)
        try:
            with armed(f"file:{n}={action}"):
                leases.retain(run, "snapshots", keep=1)
            break
        except OSError:
            cases.append(n)
        for step in commit.steps(run.snapshots):
            sound_snapshot(run, step)
        leases.retain(run, "snapshots", keep=1)
        assert files.list_names(run.snapshots) == ["00000003", "LATEST.json"]
        assert n < MOST
    assert len(cases) >= 4


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", ["lease", "end"])
def test_a_small_file_that_fails_anywhere_is_the_old_one_or_the_new(tmp_path, name, action, cases):
    for n in itertools.count(1):
        run = RunDir(tmp_path / f"{n}")
        lease = leases.Lease(run, "reader", seconds=1000.0, clock=time.time)
        lease.hold({"snapshots": [OLD]})
        try:
            with armed(f"file:{n}={action}"):
                if name == "lease":
                    lease.hold({"snapshots": [NEW]})
                else:
                    follow.mark_end(run, step=NEW)
            break
        except OSError:
            cases.append(n)
        assert leases.leased(run, "snapshots") in ({OLD}, {NEW})
        marked = files.read_sealed(run.end_marker)
        assert marked is None or marked["step"] == NEW
        assert n < MOST
    assert len(cases) >= 4
