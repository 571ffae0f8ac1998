"""Trainer and builder processes are killed, stopped or terminated at each failpoint.

A process first hangs at the failpoint, then gets the signal. The same command must then finish the
run, and every checksum must match. Cases run in parallel because they mostly wait. `make faults`
runs all cases, `make test` a few.
"""

import os
import signal
import time

import pytest
from support.processes import builder_pid, process_state
from support.two_jobs import TwoJobs

from realm_jax.storage.failpoints import VARIABLE

FAULT = "failpoints x signals"
STEPS, EVERY = 30, 10
PARALLEL = 6
HANGING = "T"  # process state: stopped by a signal
SECONDS_STOPPED = 30.0
TIMEOUT = 900.0
# failpoint -> the visit at which the process hangs; the second one, if any, is in mid-run
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
EITHER = {"retention.unlisted": 1}  # in either job
SEGMENTS = {"segment.finished": 6}  # of an index of four segments
POINTS = TRAINER | BUILDER | EITHER | SEGMENTS
IN_MAKE_TEST = [
    ("checkpoint.committed", "kill_both"),
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
EXIT_CODES = {  # of the first process
    kill_trainer: {-signal.SIGKILL},
    kill_builder: {1, 0},  # 0 if the builder had already done its last index
    kill_both: {-signal.SIGKILL},
    stop_builder: {0},
    terminate: {75, 0},
}


def go_on(pid):
    if process_state(pid) not in ("", "Z"):
        os.kill(pid, signal.SIGCONT)


def hung_processes(jobs, command):
    """Waits until one process hangs at the failpoint; returns the pids of trainer and builder."""
    trainer = command.process.pid

    def one_hangs():
        builder = builder_pid(jobs.run)
        return builder is not None and HANGING in (process_state(trainer), process_state(builder))

    command.until(one_hangs, "process at the point", seconds=TIMEOUT)
    return trainer, builder_pid(jobs.run)


def run_case(folder, fork_server, knowledge, point, do):
    """Runs one case from the first process to the finished run."""
    # with keep=1, the retention of both jobs deletes something even in such a short run
    changes = {"refresh__keep": 1, "checkpoint__keep": 1}
    changes |= {"search__segment_passages": 12} if point in SEGMENTS else {}
    jobs = TwoJobs(folder, fork_server, knowledge, STEPS, EVERY, **changes)
    first = jobs.start(**{VARIABLE: f"{point}:{POINTS[point]}=hang"})
    try:
        do(*hung_processes(jobs, first))
        assert first.process.wait(TIMEOUT) in EXIT_CODES[do], first.err.read_text()
    finally:
        jobs.kill()
    jobs.finish(TIMEOUT)


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
def test_the_same_command_finishes_after_a_signal_at_a_failpoint(outcome, point, do):
    """`run_case` contains the assertions."""
