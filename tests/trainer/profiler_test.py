"""The profiler traces the configured steps of each stage."""

import gzip
import json
import threading

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.errors import ConfigError
from realm_jax.trainer import run as trainer
from realm_jax.trainer.profiler import step_range


def test_the_trace_of_the_steps_is_written_and_can_be_read(tiny, tmp_path):
    config = tiny_config(
        tiny.folder, model__layers=1, stages__ict__steps=4, report__profile_steps="1:2"
    )
    trainer.run(str(tmp_path), config, threading.Event())
    folder = tmp_path / "logs" / "tensorboard" / "ict" / "plugins" / "profile"
    [perfetto] = folder.glob("*/perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(perfetto.read_bytes()))["traceEvents"]
    steps = [e["args"]["step_num"] for e in events if e.get("name") == "ict" and "args" in e]
    assert sorted(map(int, steps)) == [1, 2]
    [for_tensorboard] = folder.glob("*/*.xplane.pb")
    assert for_tensorboard.stat().st_size > 0


def test_no_step_is_traced_by_default():
    assert not step_range(tiny_config().report.profile_steps)


@pytest.mark.parametrize("wrong", ["3", "a:b", "5:4", "-1:4", ":", "1:2:3"])
def test_a_value_that_is_no_step_range_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"config.report.profile_steps[\s\S]*FIRST:LAST"):
        tiny_config(report__profile_steps=wrong)


def test_the_last_step_of_the_range_is_included():
    assert list(step_range("2:4")) == [2, 3, 4]
    assert list(step_range("")) == []
