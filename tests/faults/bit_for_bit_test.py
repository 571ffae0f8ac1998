"""A run killed at twenty random steps equals an uninterrupted run, bit for bit, at every step.

In sync mode both runs use the same indexes. In the other modes the index of a step depends on
timing, so the uninterrupted run replays the swap log of the killed run. With a trainer of two
processes, process 1 is killed and process 0 ends because of that.
"""

import collections
import random
import shutil
import signal

import jax
import numpy as np
import pytest
from support.two_jobs import TwoJobs, TwoTrainers

from realm_jax.artifacts.params import load_parameters
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.storage import commit
from realm_jax.storage.failpoints import VARIABLE
from realm_jax.storage.layout import PARAMETERS, step_name
from realm_jax.storage.logs import read_log

FAULT = "bit for bit"
PARALLEL = 3
KILLS, MAX_STEPS = 20, 9  # kills; steps from a start to the next kill
STEPS, EVERY = 200, 10
TIMEOUT = 900.0
SETTINGS = {"checkpoint__every": 3, "report__every": 1, "refresh__keep": 1000}


def kill_at_random_steps(jobs, draw):
    """Kills the run twenty times, each time after a step was dispatched; then finishes it."""
    for _ in range(KILLS):
        point = f"step.dispatched:{draw.randint(1, MAX_STEPS)}"
        assert jobs.start(**{VARIABLE: point}).process.wait(TIMEOUT) == -signal.SIGKILL
    jobs.finish(TIMEOUT)


def losses(jobs):
    """Returns step -> set of (loss, gradient norm); a repeated step may add a second element."""
    found = collections.defaultdict(set)
    for record in read_log(jobs.run.logs / "realm.jsonl"):
        if "loss" in record:
            found[record["step"]].add((record["loss"], record["gradient_norm"]))
    return dict(found)


def final_state(jobs):
    """Returns swap log, params and optimizer state of the last checkpoint."""
    folder = jobs.run.checkpoints("realm") / step_name(STEPS)
    swaps = commit.read_manifest(folder)["swaps"]
    return swaps, load_parameters(folder / PARAMETERS), load_parameters(folder / "optimizer")


def run_case(folder, fork_server, knowledge, mode):
    def make_jobs(name):
        settings = {**SETTINGS, "refresh__mode": "sync" if mode == "two trainers" else mode}
        settings |= {"search__segment_passages": 12} if mode == "rolling" else {}
        kind = TwoTrainers if mode == "two trainers" else TwoJobs
        return kind(folder / name, fork_server, knowledge, STEPS, EVERY, **settings)

    killed, uninterrupted = make_jobs("killed"), make_jobs("uninterrupted")
    kill_at_random_steps(killed, random.Random(mode))
    if mode in ("async", "rolling"):
        shutil.copytree(killed.run.published_index, uninterrupted.run.published_index)
        # the index of the last step is built after training
        shutil.rmtree(uninterrupted.run.published_index / step_name(STEPS))
        uninterrupted.run.logs.mkdir(parents=True)
        shutil.copy(killed.run.swaps, uninterrupted.run.swaps)
    uninterrupted.finish(TIMEOUT)
    return killed, uninterrupted


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["sync", "async", "rolling", "two trainers"])
def test_a_run_killed_at_twenty_random_steps_equals_an_uninterrupted_run(outcome, mode, cases):
    killed, uninterrupted = outcome
    assert final_state(killed)[0] == final_state(uninterrupted)[0] != []
    jax.tree.map(np.testing.assert_array_equal, final_state(killed), final_state(uninterrupted))
    assert losses(killed) == losses(uninterrupted)
    assert len(losses(killed)) == STEPS
    for step in commit.steps(uninterrupted.run.snapshots):
        one, other = (read_snapshot(j.run.snapshots / step_name(step)) for j in outcome)
        jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    cases += range(KILLS)
