"""Agreements of real processes: one decides for all; one that does not answer is named."""

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest
from support.peer_processes import PATIENCE, PeerProcesses

pytestmark = pytest.mark.slow  # starts real processes or a whole refresh

SCRIPT = Path(__file__).parent / "agreeing_process.py"


@pytest.fixture
def start(tmp_path):
    """Starts processes that all do the same part of `agreeing_process.py`."""
    jobs = []

    def start(part, count=2):
        jobs.append(PeerProcesses(tmp_path, SCRIPT, count, part, tmp_path))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


def test_process_0_decides_for_all(start):
    for output in start("agree", 3).wait(0, 0, 0):
        assert "agreed [0, 'from process 0']" in output
        assert "gathered [0, 1, 2]" in output


@pytest.mark.parametrize(("part", "missing"), [("silent", 1), ("silent_leader", 0)])
def test_a_process_that_does_not_answer_is_named_by_all_and_ends_the_job(start, part, missing):
    outputs = start(part, 3).wait(76, 76, 76)
    for number, output in enumerate(outputs):
        assert f"waiting for process {missing}: not answered 'swap' of step 8 for 1 s" in output
        limit = f"process {missing} of 3 has not answered 'swap' of step 8 for 4 s"
        assert f"realm: {limit}; process {number} exits too" in output
        assert "start all processes again with the same command" in output
    assert "in silent" in outputs[missing]  # the stack of the process that does not answer


def test_a_late_answer_is_only_warned_about(start):
    for output in start("late").wait(0, 0):
        assert output.count("waiting for process 1: not answered 'swap' of step 8") == 1
        assert "gathered [0, 1]" in output


def test_a_process_that_ends_without_a_word_is_reported_by_all_others(start):
    outputs = start("lost", 3).wait(76, 1, 76)
    for output in (outputs[0], outputs[2]):
        assert "process 1 of 3 is lost" in output
        assert "Traceback" not in output


def test_process_0_survives_strangers_while_its_processes_join(start, tmp_path):
    job, deadline = start("besieged", 3), time.monotonic() + PATIENCE
    while not (tmp_path / "port").exists():
        assert time.monotonic() < deadline and job.processes[0].poll() is None
        time.sleep(0.05)
    port, token = (tmp_path / "port").read_text().split()
    numbered = [f"{token}{number:08d}".encode() for number in (0, 3)]
    objects = [json.dumps(one).encode() + b"\n" for one in ([1], {"token": "ä"}, {"token": token})]
    with contextlib.ExitStack() as stack:
        for sent in (b"", b"", *objects, *numbered, b"\xff" * 100, b"x" * 1_000_000):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", int(port))))
            with contextlib.suppress(OSError):  # closed while it sends
                stranger.sendall(sent)
        (tmp_path / "go").touch()
        outputs = job.wait(0, 0, 0)
    assert all("gathered [0, 1, 2]" in output for output in outputs)
