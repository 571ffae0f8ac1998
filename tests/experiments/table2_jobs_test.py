"""Parallel runs of the small Table 2 experiment, each on its own cores; failures and signals."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from table2_small.processes import run_processes


@pytest.fixture
def stop():
    return threading.Event()


def test_jobs_run_in_parallel_on_separate_cores_until_one_fails(tmp_path, stop):
    note = (
        "import os, pathlib, sys, time\n"
        "place, other = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])\n"
        "time.sleep(0.2)\n"
        "place.write_text(str(sorted(os.sched_getaffinity(0))))\n"
        "while not other.exists(): time.sleep(0.01)\n"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    commands = [[sys.executable, "-c", note, *pair] for pair in ((one, two), (two, one))]
    assert run_processes(commands, 2, stop) == 0  # each waits for the other
    if len(os.sched_getaffinity(0)) > 1:
        assert Path(one).read_text() != Path(two).read_text()
    never = [sys.executable, "-c", f"open({str(tmp_path / 'never')!r}, 'w')"]
    assert run_processes([[sys.executable, "-c", "exit(7)"], never], 1, stop) == 7
    assert not (tmp_path / "never").exists()


def test_a_stop_signal_stops_the_jobs_and_starts_no_more(tmp_path, stop):
    begun, never = tmp_path / "begun", tmp_path / "never"
    waits = f"import time; open({str(begun)!r}, 'w').close(); time.sleep(600)"
    writes = f"open({str(never)!r}, 'w')"
    commands = [[sys.executable, "-c", code] for code in (waits, writes)]

    def stop_when_begun():
        while not begun.exists():
            time.sleep(0.01)
        stop.set()

    asked = threading.Thread(target=stop_when_begun)
    asked.start()
    assert run_processes(commands, 1, stop) == -signal.SIGTERM
    asked.join()
    assert not never.exists()
