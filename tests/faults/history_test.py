"""`assert_history` accepts the logs of a correct run and rejects each kind of violation."""

import json

import numpy as np
import pytest
from support.history import assert_history

from realm_jax.artifacts import audit_log as history
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage import commit
from realm_jax.storage.layout import MANIFEST, RunDir, step_name

FAULT = "history"
ROWS = np.arange(120)[::-1].copy()
STEPS, EVERY = 6, 2


def publish(run, step, seed=None):
    vectors = np.random.default_rng(step if seed is None else seed).normal(size=(120, 8))
    vectors = vectors.astype(np.float32)
    searcher = ExactSearcher(vectors.astype(np.float16).astype(np.float32))
    fields = {"snapshot_step": step}
    publish_index(run, step, searcher, ROWS, vectors, {"w": np.zeros(1)}, fields, "{}")
    return searcher, ROWS, vectors.astype(np.float16)


def swap(run, step, index_step):
    index = open_index(run.published_index / step_name(index_step))
    history.log_swap(run, step, index, history.probe_hash_of(index))


@pytest.fixture
def run(tmp_path):
    """Three swaps; the builder logs the second one late, as after a kill before the log entry."""
    run = RunDir(tmp_path)
    for step in range(0, STEPS, EVERY):
        parts = publish(run, step)
        if step != 2:
            history.log_index(run, step, *parts)
        else:
            history.log_missing_indexes(run)
        swap(run, step, step)
    return run


def test_a_correct_history_is_accepted(run):
    assert assert_history(run, STEPS, bound=EVERY - 1) == 3


def test_an_index_is_logged_only_once(run):
    before = run.indexes.read_text()
    history.log_missing_indexes(run)
    history.log_index(run, 4, *publish(run, 4))
    assert run.indexes.read_text() == before
    assert before.count("\n") == 3


def change(path, line, **fields):
    lines = path.read_text().splitlines()
    lines[line] = json.dumps({**json.loads(lines[line]), **fields})
    path.write_text("\n".join(lines) + "\n")


def test_candidates_that_differ_from_the_builders_are_an_error(run):
    change(run.swaps, 1, candidates="0" * 64)
    with pytest.raises(AssertionError, match="candidates"):
        assert_history(run, STEPS)


def test_an_index_that_changed_after_its_use_is_an_error(run):
    (run.published_index / step_name(2) / MANIFEST).unlink()
    publish(run, 2, seed=9)
    with pytest.raises(AssertionError):
        assert_history(run, STEPS)


def test_an_index_that_the_builder_never_published_is_an_error(run):
    lines = run.indexes.read_text().splitlines()
    run.indexes.write_text("\n".join([lines[0], lines[2]]) + "\n")
    with pytest.raises(AssertionError, match="never published"):
        assert_history(run, STEPS)


def test_a_swap_to_an_older_index_is_an_error(run):
    swap(run, 5, 2)
    with pytest.raises(AssertionError, match="index steps of swaps"):
        assert_history(run, STEPS)


def test_staleness_above_the_bound_is_an_error(run):
    with pytest.raises(AssertionError, match="step 9 searched"):
        assert_history(run, 10, bound=EVERY)


def test_a_truncated_log_line_does_not_affect_later_lines(run):
    complete = run.swaps.read_text()
    run.swaps.write_text(complete[:-20])
    swap(run, 4, 4)
    assert [r["index_step"] for r in map(json.loads, run.swaps.read_text().splitlines()[3:])] == [4]
    assert commit.steps(run.published_index) == [0, 2, 4]
