"""Runs commands in parallel, each pinned to its own CPU cores."""

import os
import queue
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

_POLL_SECONDS = 0.2


def run_processes(commands: list[list[str]], jobs: int, stop: threading.Event) -> int:
    """Runs commands, `jobs` at a time; starts no more after one has failed.

    A small model hardly uses a second core, so two runs on one core each finish sooner than two
    runs in sequence on both cores.

    Args:
      commands: command lines.
      jobs: number of parallel processes.
      stop: if set, running processes get SIGTERM and are awaited.

    Returns:
      0, or the exit code of a command that failed.
    """
    failed: list[int] = []
    shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for share in _shares(jobs):
        shares.put(share)

    def run(command: list[str]) -> None:
        if failed or stop.is_set():
            return
        cores = shares.get()
        process = subprocess.Popen(command)
        if cores:
            os.sched_setaffinity(process.pid, cores)
        while process.poll() is None:
            if stop.wait(_POLL_SECONDS):
                process.terminate()
                process.wait()
        if process.returncode:
            failed.append(process.returncode)
        shares.put(cores)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, commands))
    return failed[0] if failed else 0


def _shares(jobs: int) -> list[list[int]]:
    """CPU cores of each job; empty if the platform has no affinity or too few cores."""
    if not hasattr(os, "sched_getaffinity"):
        return [[]] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [cores[job::jobs] for job in range(jobs)]
