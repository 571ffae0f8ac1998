"""Trainer, builder or both are killed at random times; the same command still finishes the run."""

import contextlib
import os
import random
import signal
import subprocess

import pytest
from support.processes import builder_pid, logged_swaps, process_state
from support.two_jobs import TwoJobs

FAULT = "kills at random times"
PARALLEL = 5
RUNS, KILLS = 10, 10
STEPS, EVERY = 120, 10
TIMEOUT = 900.0
# Upper limit of the time from a start to a kill. It is multiplied by SHORTER after a start that
# reached the end of the run, and by LONGER after a start without an index swap. So most kills hit
# a run in progress on a fast and on a slow machine.
SECONDS, SHORTER, LONGER = 15.0, 0.6, 1.3


def kill_one(jobs, draw, seconds):
    """Starts the jobs and kills one or both within `seconds`.

    Returns:
      The names of the killed jobs, or None if the run ended before the kill.
    """
    command = jobs.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert command.process.wait(draw.uniform(0.0, seconds)) == 0, command.err.read_text()
        return None
    victims = draw.choice([["trainer"], ["builder"], ["builder", "trainer"]])
    pids = {"trainer": command.process.pid, "builder": builder_pid(jobs.run)}
    for victim in victims:
        if pids[victim] is not None and process_state(pids[victim]) not in ("", "Z"):
            os.kill(pids[victim], signal.SIGKILL)
    command.process.wait(TIMEOUT)
    return "+".join(victims)


def run_case(folder, fork_server, knowledge, seed):
    """Makes ten kills, in one run or in several if a run ends before; checks that all finish."""
    draw = random.Random(seed)
    done = []

    def make_jobs():
        return TwoJobs(
            folder / str(len(done)), fork_server, knowledge, STEPS, EVERY, refresh__mode="async"
        )

    jobs, kills, seconds = make_jobs(), [], SECONDS
    while len(kills) < KILLS:
        before = logged_swaps(jobs.run)
        killed = kill_one(jobs, draw, seconds)
        after = logged_swaps(jobs.run)
        assert after[: len(before)] == before
        if killed is None:
            jobs.assert_complete()
            done.append(jobs)
            jobs = make_jobs()
            seconds *= SHORTER
        else:
            kills.append(killed)
            seconds *= LONGER if after == before else 1.0
    jobs.finish(TIMEOUT)
    return kills


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(RUNS))
def test_runs_killed_at_random_times_finish_with_all_data_intact(outcome, seed, cases):
    print(f"seed {seed}: {outcome}")
    cases += outcome
