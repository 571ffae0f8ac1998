"""CPU time of an index builder that waits for the next snapshot; the target is 2 % of a core.

Command:  python benchmarks/idle_builder.py [--seconds=60] [--poll=0.5] [--json]
Data:     a tiny synthetic corpus, which is written
Output:   `core_share`: CPU seconds per second of waiting, after the builder has published an index
          of the newest snapshot; `load_average` of the machine
Time:     half a minute more than --seconds
"""

import os
import signal
import tempfile
import time
from pathlib import Path

import tests_path  # noqa: F401 - before `support`
from command_line import make_parser, write_report
from support.fork_server import ForkServer
from support.processes import RealmProcess, environment
from support.tiny_corpus import write_tiny_corpus
from support.two_jobs import TwoJobs

from realm_jax.storage import commit

SETTLE_SECONDS = 5.0  # after the index is published, so that the build is not counted


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def core_share(folder: Path, seconds: float, poll: float) -> float:
    """Returns CPU seconds per second of waiting."""
    variables = environment(folder / "compiled")
    fork_server = ForkServer(variables)
    jobs = TwoJobs(
        folder / "run", fork_server, write_tiny_corpus(folder).folder, steps=20, every=10
    )
    trainer = jobs.start("train")
    flags = (f"--workdir={jobs.run.workdir}", f"--poll={poll}")
    builder = RealmProcess(folder, variables, "index", *flags)
    try:
        builder.until(lambda: commit.latest(jobs.run.published_index) is not None, "index")
        os.kill(trainer.process.pid, signal.SIGKILL)
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(builder.process.pid)
        time.sleep(seconds)
        return (cpu_seconds(builder.process.pid) - before) / seconds
    finally:
        builder.process.kill()
        jobs.kill()
        fork_server.close()


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--poll", type=float, default=0.5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        share = core_share(Path(folder), arguments.seconds, arguments.poll)
    load = [round(one, 1) for one in os.getloadavg()]
    report = {"poll_seconds": arguments.poll, "core_share": share, "load_average": load}
    write_report(report, arguments)


if __name__ == "__main__":
    main()
