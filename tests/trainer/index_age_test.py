"""The age of an index, whose segments may be of several snapshots."""

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.required import mean_snapshot_step, snapshot_step_of
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_age import IndexAge
from realm_jax.trainer.swap_log import staleness


@pytest.fixture
def age(tmp_path):
    return IndexAge(RunDir(tmp_path), tiny_config(refresh__alarm_steps=10).refresh)


def of_segments(index_step, *steps):
    return {"step": index_step, "segments": [{"snapshot_step": step} for step in steps]}


def test_staleness_is_the_mean_over_the_segments(age):
    age.opened(of_segments(6, 4, 6, 2, 2))
    assert age.of(6, 7) == {"index_step": 6, "staleness_steps": 3.5, "staleness_most": 5}
    age.opened(of_segments(8, 8, 8))
    assert age.of(8, 9) == {"index_step": 8, "staleness_steps": 1}


def test_the_log_of_swaps_has_the_same_mean():
    manifest = of_segments(6, 4, 6, 2, 2)
    logged = {"index_step": 6, "mean_snapshot_step": mean_snapshot_step(manifest)}
    assert 7 - snapshot_step_of(logged) == 3.5
    assert mean_snapshot_step({"step": 8}) == snapshot_step_of({"index_step": 8}) == 8
    swaps = [(0, 0), (4, 1.5), (6, 6)]
    ages = [0, 1, 2, 3, 2.5, 3.5, 0, 1]
    assert staleness(swaps, 8) == {"mean": sum(ages) / 8, "max": 3.5}


def test_an_index_without_segments_is_as_old_as_its_snapshot(age):
    age.opened({"step": 4, "snapshot_time": 0.0})
    found = age.of(4, 9)
    assert (found["index_step"], found["staleness_steps"]) == (4, 5)
    assert found["index_age_s"] > 1e9 and "staleness_most" not in found
    assert age.of(2, 9) == {"index_step": 2, "staleness_steps": 7}  # opened by an earlier process


def test_the_stalest_segment_causes_one_warning(age, caplog):
    age.opened(of_segments(20, 9, 20))
    for step in (19, 20, 21):
        age.warn_if_stale(step, 20)
    [warning] = caplog.messages
    assert "step 20 searches the index of step 20, whose stalest segment is 11 steps old" in warning
    age.opened({"step": 22})
    age.warn_if_stale(33, 22)
    assert "index of step 22, which is 11 steps old" in caplog.messages[1]
