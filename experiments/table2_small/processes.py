"""Several runs at a time, each on cores of its own."""

import os
import queue
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

_LOOK_SECONDS = 0.2


def run_processes(commands: list[list[str]], jobs: int, stop: threading.Event) -> int:
    """Runs commands, `jobs` at a time; begins no more of them when one has failed.

    Programs this small hardly use a second core: two runs on a core each are done sooner than one
    after the other on both (where the system ties processes to cores).

    Args:
      commands: their words.
      jobs: how many run at a time.
      stop: has those that run be told to stop, and waited for.

    Returns:
      0, or the exit code of one that failed.
    """
    failed: list[int] = []
    shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for share in _shares(jobs):
        shares.put(share)

    def run(command: list[str]) -> None:
        if failed or stop.is_set():
            return
        own = shares.get()
        process = subprocess.Popen(command)
        if own:
            os.sched_setaffinity(process.pid, own)
        while process.poll() is None:
            if stop.wait(_LOOK_SECONDS):
                process.terminate()
                process.wait()
        if process.returncode:
            failed.append(process.returncode)
        shares.put(own)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, commands))
    return failed[0] if failed else 0


def _shares(jobs: int) -> list[list[int]]:
    """Cores of each job; none where cores are not given out or are too few."""
    if not hasattr(os, "sched_getaffinity"):
        return [[]] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [cores[job::jobs] for job in range(jobs)]
