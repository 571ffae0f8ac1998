"""The checks of `support.history` accept a correct run and reject each kind of violation."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from support import grown_run
from support.history import assert_history, assert_updates
from support.tiny_corpus import passages, vocabulary

from realm_jax.artifacts import audit_log as history
from realm_jax.artifacts.index_update import newest_number, publish_update, read_update
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher
from realm_jax.storage import commit
from realm_jax.storage.layout import MANIFEST, RunDir, step_name
from realm_jax.text.vocabulary import write_vocabulary

FAULT = "history"
ROWS = np.arange(120)[::-1].copy()
STEPS, EVERY = 6, 2


LINEAGE = ["generation 0", "generation 2", "generation 4"]


def vectors_of(seed, count=120):
    vectors = np.random.default_rng(seed).normal(size=(count, 8))
    return vectors.astype(np.float16).astype(np.float32)


def publish(run, step, seed=None):
    vectors = vectors_of(step if seed is None else seed)
    searcher = ExactSearcher(vectors)
    fields = {"snapshot_step": step, "corpus_hash": f"generation {step}"}
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


def test_an_index_of_an_earlier_generation_is_an_error(run):
    assert assert_history(run, STEPS, lineage=LINEAGE) == 3
    with pytest.raises(AssertionError, match="generations of indexes"):
        assert_history(run, STEPS, lineage=LINEAGE[::-1])


def indexes_of_segments(run, *indexes):
    """Publishes an index at step 2, 4, ... from the steps of the snapshots of its segments.

    The vectors of a segment follow from its step; `-2` gives step 2 other vectors.
    """
    for step, segments in enumerate(indexes, start=1):
        parts = [vectors_of(100 + 10 * of + number, 60) for number, of in enumerate(segments)]
        searcher = SegmentedSearcher([*map(ExactSearcher, parts)])
        entries = [{"snapshot_step": abs(of)} for of in segments]
        fields = {"snapshot_step": 2 * step, "segment_settings": "same", "segments": entries}
        params = {"w": np.zeros(1)}
        publish_index(run, 2 * step, searcher, ROWS, np.concatenate(parts), params, fields, "{}")
    history.log_missing_indexes(run)
    return assert_history(run, 0)


def test_segments_that_are_older_than_before_or_were_kept_and_changed_are_errors(tmp_path):
    kept, older, changed = (RunDir(tmp_path / name) for name in ("kept", "older", "changed"))
    assert indexes_of_segments(kept, (2, 0), (2, 4)) == 0
    with pytest.raises(AssertionError, match="segment 1 of steps"):
        indexes_of_segments(older, (2, 2), (4, 0))
    with pytest.raises(AssertionError, match="segment 0 was kept with other files"):
        indexes_of_segments(changed, (2, 0), (-2, 4))


@pytest.fixture
def grown(tmp_path):
    """Run and corpus with an index update for a generation."""
    run, corpus = RunDir(tmp_path / "run"), tmp_path / "corpus"
    write_vocabulary(tmp_path / "vocab.txt", vocabulary())
    write_passages(corpus, passages(6), tmp_path / "vocab.txt")
    grown_run.publish_base(run, PassageStore.open(corpus))
    current = grown_run.open_newest(run, corpus)
    grown_run.write(corpus, (0, "the river"), (None, "is new"), removed=(5,))
    grown_run.bring_up_to_date(run, current)
    assert assert_updates(run, corpus) == 1
    return run, corpus, read_update(run, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"removed": np.array([4])}, "not equal"),  # finds a passage that was removed
        ({"removed": np.array([4, 5])}, "finds other"),  # does not find one that exists
        ({"segments": ("published_index",)}, "finds other"),  # has lost a segment
    ],
)
def test_an_update_that_finds_other_passages_than_its_generation_is_an_error(grown, changes, error):
    run, corpus, update = grown
    publish_update(run, replace(update, **changes), newest_number(run))
    with pytest.raises(AssertionError, match=error):
        assert_updates(run, corpus)


def test_an_update_of_an_earlier_generation_is_an_error(grown):
    run, corpus, update = grown
    grown_run.write(corpus, (1, "was the river"))
    grown_run.bring_up_to_date(run, grown_run.open_newest(run, corpus))
    assert assert_updates(run, corpus) == 2
    publish_update(run, update, newest_number(run))
    with pytest.raises(AssertionError, match="generations of updates"):
        assert_updates(run, corpus)


def test_a_segment_that_no_update_lists_or_with_another_name_is_an_error(grown):
    run, corpus, update = grown
    [name] = update.segments[1:]
    shutil.copytree(run.segments / name, run.segments / "s0")
    assert assert_updates(run, corpus, finished=False) == 1
    with pytest.raises(AssertionError, match="s0"):
        assert_updates(run, corpus)
    publish_update(run, replace(update, segments=("published_index", "s0")), 1)
    with pytest.raises(AssertionError, match="name of s0"):
        assert_updates(run, corpus, finished=False)


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
