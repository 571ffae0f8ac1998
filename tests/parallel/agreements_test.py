"""How often processes wait for each other's answers in a training step."""

import collections
import threading

import pytest
from support.builder_thread import building
from support.tiny_corpus import tiny_config

from realm_jax.parallel import hosts
from realm_jax.trainer import run as trainer

STEPS = 12
# At a start, at a checkpoint and at the end, processes may agree as often as they need to.
RARE = ("checkpoint/", "swaps", "workdir", "inputs", "export")
RARE += ("realm/newest", "reader/newest")
INDEX = ("index wait", "index deleted")  # at the first step, and at a refresh in sync mode


@pytest.fixture
def asked(monkeypatch):
    """Topics of all agreements, by step; one of `INDEX` counts once per step."""
    topics, all_gather = collections.defaultdict(list), hosts.all_gather

    def counted(topic, step, value=None):
        if topic.startswith(INDEX) and "index" not in topics[step]:
            topics[step].append("index")
        if not topic.startswith(RARE + INDEX):
            topics[step].append(topic)
        return all_gather(topic, step, value)

    monkeypatch.setattr(hosts, "all_gather", counted)
    return topics


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_realm_step_needs_two_agreements(asked, tiny, tmp_path, mode):
    config = tiny_config(
        tiny.folder, model__layers=1, stages__realm__steps=STEPS, refresh__mode=mode
    )
    with building(tmp_path):
        trainer.run(str(tmp_path), config, threading.Event())
    chosen = {0} | set(range(0, STEPS, config.refresh.every) if mode == "sync" else ())
    found = {step: sorted(topics) for step, topics in asked.items()}
    assert found.pop(STEPS) == ["index", "realm/recall"]  # final index and evaluation
    assert found == {
        step: ["index"] * (step in chosen) + ["realm/packing", "realm/step"]
        for step in range(STEPS)
    }


def test_an_ict_step_needs_two_agreements(asked, tiny, tmp_path):
    config = tiny_config(tiny.folder, model__layers=1, stages__ict__steps=3)
    trainer.run(str(tmp_path), config, threading.Event())
    assert {step: len(topics) for step, topics in asked.items()} == {0: 2, 1: 2, 2: 2}
