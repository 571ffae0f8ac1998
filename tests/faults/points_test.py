"""Both jobs for real, hung at a named point, then killed, stopped or told to end: nothing is lost.

The same command, run again, finishes every one of these runs, and every byte of what it leaves is
as published. Several cases run at a time, since each of them mostly waits; `make faults` runs them
all, `make test` a few.
"""

import os
import signal
import time

import pytest
from support.processes import builder_pid, process_state
from support.two_jobs import TwoJobs

from realm_jax.storage.failpoints import VARIABLE

FORM = "failpoints x signals"
STEPS, EVERY = 30, 10
AT_ONCE = 6
HANGING = "T"
SECONDS_STOPPED = 30.0
PATIENCE = 900.0
# name -> which visit hangs: the second where there is one, so that a run is under way
TRAINER = {
    "snapshot.staged": 2,
    "snapshot.committed": 2,
    "snapshot.published": 2,
    "checkpoint.staged": 2,
    "checkpoint.committed": 2,
    "index.leased": 2,
    "index.verified": 2,
    "index.swapped": 2,
    "export.staged": 1,
    "export.committed": 1,
    "end.begun": 1,
    "end.marked": 1,
}
BUILDER = {
    "shard.embedded": 2,
    "searcher.written": 2,
    "published_index.staged": 2,
    "published_index.committed": 2,
    "published_index.published": 2,
}
EITHER = {"retention.unlisted": 1}
POINTS = TRAINER | BUILDER | EITHER
IN_MAKE_TEST = [
    ("checkpoint.committed", "kill_both"),
    ("published_index.committed", "kill_builder"),
    ("index.verified", "terminate"),
]


def kill_trainer(trainer, builder):
    os.kill(trainer, signal.SIGKILL)
    go_on(builder)


def kill_builder(trainer, builder):
    os.kill(builder, signal.SIGKILL)
    go_on(trainer)


def kill_both(trainer, builder):
    os.kill(builder, signal.SIGKILL)
    os.kill(trainer, signal.SIGKILL)


def stop_builder(trainer, builder):
    os.kill(builder, signal.SIGSTOP)
    go_on(trainer)
    time.sleep(SECONDS_STOPPED)
    go_on(builder)


def terminate(trainer, builder):
    os.kill(trainer, signal.SIGTERM)
    go_on(trainer)
    go_on(builder)


SIGNALS = [kill_trainer, kill_builder, kill_both, stop_builder, terminate]
ENDS = {  # exit codes of the first life
    kill_trainer: {-signal.SIGKILL},
    kill_builder: {1, 0},  # 0 where nothing was left for the builder to do
    kill_both: {-signal.SIGKILL},
    stop_builder: {0},
    terminate: {75, 0},
}


def go_on(pid):
    if process_state(pid) not in ("", "Z"):
        os.kill(pid, signal.SIGCONT)


def hung_processes(jobs, command):
    """Trainer and builder, once one of them hangs at the point."""
    trainer = command.process.pid

    def one_hangs():
        builder = builder_pid(jobs.run)
        return builder is not None and HANGING in (process_state(trainer), process_state(builder))

    command.until(one_hangs, "process at the point", seconds=PATIENCE)
    return trainer, builder_pid(jobs.run)


def play(folder, fork_server, knowledge, point, do):
    """One case, from the first life to the finished run."""
    # a keep of 1 has either job's retention delete something in so short a run
    jobs = TwoJobs(
        folder, fork_server, knowledge, STEPS, EVERY, refresh__keep=1, checkpoint__keep=1
    )
    first = jobs.start(**{VARIABLE: f"{point}:{POINTS[point]}=hang"})
    try:
        do(*hung_processes(jobs, first))
        assert first.process.wait(PATIENCE) in ENDS[do], first.err.read_text()
    finally:
        jobs.kill()
    jobs.finish(PATIENCE)


def marks(point, do):
    return [] if (point, do.__name__) in IN_MAKE_TEST else [pytest.mark.faults]


@pytest.mark.parametrize(
    ("point", "do"),
    [
        pytest.param(point, do, id=f"{point}-{do.__name__}", marks=marks(point, do))
        for point in POINTS
        for do in SIGNALS
    ],
)
def test_whatever_happens_at_a_point_the_same_command_finishes(played, point, do):
    """`play` asserts it."""
