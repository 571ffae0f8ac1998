"""A run killed at twenty random steps equals one that was never killed, at every step, to the bit.

Kept in step with the builder, both find the same indexes by themselves. Beside it, which index a
step uses is a matter of luck: there, the run never killed follows the swap log of the other. Of two
trainers that are one, process 1 is killed, and process 0 ends of it.
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

FORM = "bit for bit"
AT_ONCE = 3
KILLS, LONGEST_LIFE = 20, 9  # steps
STEPS, EVERY = 200, 10
PATIENCE = 900.0
SETTINGS = {"checkpoint__every": 3, "report__every": 1, "refresh__keep": 1000}


def kill_at_random_steps(jobs, draw):
    """SIGKILL as a step has been dispatched, twenty times; then to the end."""
    for _ in range(KILLS):
        point = f"step.dispatched:{draw.randint(1, LONGEST_LIFE)}"
        assert jobs.start(**{VARIABLE: point}).process.wait(PATIENCE) == -signal.SIGKILL
    jobs.finish(PATIENCE)


def losses(jobs):
    """Losses that any life reported, by step: of a step done again, all of them."""
    found = collections.defaultdict(set)
    for record in read_log(jobs.run.logs / "realm.jsonl"):
        if "loss" in record:
            found[record["step"]].add((record["loss"], record["gradient_norm"]))
    return dict(found)


def final(jobs):
    folder = jobs.run.checkpoints("realm") / step_name(STEPS)
    swaps = commit.read_manifest(folder)["swaps"]
    return swaps, load_parameters(folder / PARAMETERS), load_parameters(folder / "optimizer")


def play(folder, fork_server, knowledge, mode):
    def make(name):
        settings = {**SETTINGS, "refresh__mode": "async" if mode == "async" else "sync"}
        kind = TwoTrainers if mode == "two trainers" else TwoJobs
        return kind(folder / name, fork_server, knowledge, STEPS, EVERY, **settings)

    killed, straight = make("killed"), make("straight")
    kill_at_random_steps(killed, random.Random(mode))
    if mode == "async":
        shutil.copytree(killed.run.published_index, straight.run.published_index)
        shutil.rmtree(straight.run.published_index / step_name(STEPS))  # built after the last step
        straight.run.logs.mkdir(parents=True)
        shutil.copy(killed.run.swaps, straight.run.swaps)
    straight.finish(PATIENCE)
    return killed, straight


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["sync", "async", "two trainers"])
def test_a_run_killed_at_twenty_random_steps_is_the_run_never_killed(played, mode, cases):
    killed, straight = played
    assert final(killed)[0] == final(straight)[0] != []
    jax.tree.map(np.testing.assert_array_equal, final(killed), final(straight))
    assert losses(killed) == losses(straight)
    assert len(losses(killed)) == STEPS
    for step in commit.steps(straight.run.snapshots):
        mine, other = (read_snapshot(j.run.snapshots / step_name(step)) for j in played)
        jax.tree.map(np.testing.assert_array_equal, mine.params, other.params)
    cases += range(KILLS)
