"""Which index the steps of two trainer processes search."""

import contextlib
import json
import time
from pathlib import Path

import pytest
from searched_indexes import publish
from support.peer_processes import PeerProcesses


@pytest.mark.parametrize(
    ("mode", "view", "replay", "steps", "expected"),
    [
        ("async", "late", [], [5], [4]),
        ("async", "newest", [[0, 0], [3, 2]], [1, 3], [0, 2]),
        ("async", "same", [[0, 0], [3, 1]], [1, 3], [0, 2]),
        ("sync", "newest", [], [1, 2], [0, 2]),
    ],
    ids=["first index", "replay", "replay of a deleted index", "boundary"],
)
@pytest.mark.slow
def test_process_0_decides_which_index_all_processes_open(
    run, tmp_path, mode, view, replay, steps, expected
):
    """Process 1 first sees no index, or only the newest; it waits, and reports none as deleted."""
    publish(run, 0, 2, 4)
    arguments = (view, json.dumps({"refresh__mode": mode}), json.dumps(replay), json.dumps(steps))
    with two_processes(tmp_path, *arguments) as job:
        assert searched(job) == [expected] * 2


@pytest.mark.slow
def test_no_clock_of_a_process_limits_the_wait(run, tmp_path):
    with two_processes(tmp_path, "fast_clock", "{}", "[]", "[0]") as job:
        while not all("joined" in log.read_text() for log in job.logs):
            assert all(process.poll() is None for process in job.processes)
            time.sleep(0.05)
        time.sleep(1.0)  # some polls, at each of which the clock of process 1 is past the limit
        publish(run, 0)
        assert searched(job) == [[0], [0]]


@contextlib.contextmanager
def two_processes(folder, *arguments):
    script = Path(__file__).parent / "index_process.py"
    job = PeerProcesses(folder, script, 2, folder, *arguments)
    try:
        yield job
    finally:
        job.kill()


def searched(job):
    """The index steps that each process searched, after it ended."""
    return [
        json.loads(line.removeprefix("searched "))
        for output in job.wait(0, 0)
        for line in output.splitlines()
        if line.startswith("searched ")
    ]
