"""Starts the processes of a job that are connected by `hosts.join`, and reads their output."""

import socket
import subprocess
import sys
from pathlib import Path

from support.processes import environment

PATIENCE = 300.0  # seconds


class PeerProcesses:
    """Processes that run the same script: SCRIPT PORT PROCESSES PROCESS ARGUMENTS.

    Args:
      folder: holds the output of each process.
      script: the Python script.
      count: number of processes.
      arguments: further arguments of the script.
    """

    def __init__(self, folder: Path, script: Path, count: int, *arguments: object):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.logs = [folder / f"process{number}.txt" for number in range(count)]
        self.processes = []
        for number, log in enumerate(self.logs):
            command = [sys.executable, script, port, count, number, *arguments]
            with log.open("w") as output:
                self.processes.append(
                    subprocess.Popen(
                        [*map(str, command)],
                        stdout=output,
                        stderr=output,
                        env=environment(folder),
                        cwd=Path(__file__).parents[2],
                    )
                )

    def wait(self, *codes: int) -> list[str]:
        """The output of each process, after all ended with these exit codes."""
        found = tuple(process.wait(PATIENCE) for process in self.processes)
        outputs = [log.read_text() for log in self.logs]
        assert found == codes, "\n".join(outputs)
        return outputs

    def kill(self) -> None:
        """Kills the processes that still run."""
        for process in self.processes:
            process.kill()
            process.wait()
