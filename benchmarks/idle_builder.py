"""Processor time of an index builder that has nothing to do: the bar is 2 % of a core.

  python benchmarks/idle_builder.py [--seconds=60] [--poll=0.5]

The builder has published an index of the newest snapshot, and waits for the next one.
"""

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path

from support.fork_server import ForkServer
from support.processes import Command, environment
from support.tiny_corpus import write_tiny_corpus
from support.two_jobs import TwoJobs

from realm_jax.storage import commit

SETTLE = 5.0  # seconds after the index, so that its end is not counted


def processor_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(folder: Path, seconds: float, poll: float) -> float:
    """Processor seconds per second of waiting."""
    fresh = environment(folder / "compiled")
    fork_server = ForkServer(fresh)
    jobs = TwoJobs(
        folder / "run", fork_server, write_tiny_corpus(folder).folder, steps=20, every=10
    )
    trainer = jobs.start("train")
    builder = Command(folder, fresh, "index", f"--workdir={jobs.run.workdir}", f"--poll={poll}")
    try:
        builder.until(lambda: commit.latest(jobs.run.published_index) is not None, "index")
        os.kill(trainer.process.pid, signal.SIGKILL)
        time.sleep(SETTLE)
        before = processor_seconds(builder.process.pid)
        time.sleep(seconds)
        return (processor_seconds(builder.process.pid) - before) / seconds
    finally:
        builder.process.kill()
        jobs.kill()
        fork_server.close()


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--poll", type=float, default=0.5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        used = share(Path(folder), given.seconds, given.poll)
    load = [round(one, 1) for one in os.getloadavg()]
    print(json.dumps({"poll_seconds": given.poll, "core_share": used, "load_average": load}))


if __name__ == "__main__":
    main()
