"""Either job or both killed at random times, again and again: what is left always finishes."""

import contextlib
import os
import random
import signal
import subprocess

import pytest
from support.processes import builder_pid, logged_swaps, process_state
from support.two_jobs import TwoJobs

FORM = "kills at random times"
AT_ONCE = 5
RUNS, KILLS = 10, 10
STEPS, EVERY = 120, 10
PATIENCE = 900.0
# A life is killed within so many seconds at first; fewer once one got through, more where a kill
# left nothing done, so that most kills meet a run under way on whatever machine.
SECONDS, FEWER, MORE = 15.0, 0.6, 1.3


def kill_one(jobs, draw, seconds):
    """Kills something within so many seconds of a life; None where the run ended before."""
    life = jobs.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert life.process.wait(draw.uniform(0.0, seconds)) == 0, life.err.read_text()
        return None
    victims = draw.choice([["trainer"], ["builder"], ["builder", "trainer"]])
    pids = {"trainer": life.process.pid, "builder": builder_pid(jobs.run)}
    for victim in victims:
        if pids[victim] is not None and process_state(pids[victim]) not in ("", "Z"):
            os.kill(pids[victim], signal.SIGKILL)
    life.process.wait(PATIENCE)
    return "+".join(victims)


def play(folder, fork_server, knowledge, seed):
    """Ten kills of one run, or of the runs after it where it got through; then all are whole."""
    draw = random.Random(seed)
    done = []

    def make():
        return TwoJobs(
            folder / str(len(done)), fork_server, knowledge, STEPS, EVERY, refresh__mode="async"
        )

    jobs, kills, seconds = make(), [], SECONDS
    while len(kills) < KILLS:
        before = logged_swaps(jobs.run)
        killed = kill_one(jobs, draw, seconds)
        after = logged_swaps(jobs.run)
        assert after[: len(before)] == before
        if killed is None:
            jobs.assert_complete()
            done.append(jobs)
            jobs = make()
            seconds *= FEWER
        else:
            kills.append(killed)
            seconds *= MORE if after == before else 1.0
    jobs.finish(PATIENCE)
    return kills


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(RUNS))
def test_kills_at_random_times_lose_nothing(played, seed, cases):
    print(f"seed {seed}: {played}")
    cases += played
