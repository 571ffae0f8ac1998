"""Starts `realm` processes by forking a server process that has already imported everything.

Importing takes seconds, forking milliseconds. The server starts no thread and no JAX backend, so a
forked process behaves like a fresh one: it has its own pid, session and standard streams, and any
signal can kill it. The index builder that `realm run` starts is a child of the trainer, as usual.
It is forked before the trainer starts, and reads its arguments from a pipe that becomes its
standard input.
"""

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

_MAX_REQUEST_BYTES = 1 << 16


class ForkedProcess:
    """A process forked by the server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: Any):
        self.pid, self._status = pid, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""
        return self._read_exit_code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the process and returns its exit code.

        Raises:
          subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        code = self._read_exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _read_exit_code(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """Client of the fork server.

    Args:
      environment: environment variables of the server and of every process it forks.
    """

    def __init__(self, environment: dict[str, str]):
        self._control, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with server_socket:
            number = server_socket.fileno()
            command = [sys.executable, "-P", "-m", "support.fork_server", str(number)]
            variables = environment | {"PYTHONPATH": str(Path(__file__).parents[1])}
            self._process = subprocess.Popen(command, pass_fds=[number], env=variables)

    def start(
        self, arguments: list[str], variables: dict[str, str], out: Path, err: Path
    ) -> ForkedProcess:
        """Forks `realm ARGUMENTS`.

        Args:
          arguments: command-line arguments of `realm`.
          variables: environment variables to add.
          out: file for stdout.
          err: file for stderr.
        """
        reading, writing = os.pipe()
        with self._lock, out.open("w") as out_file, err.open("w") as err_file:
            request = json.dumps([arguments, variables]).encode()
            descriptors = [out_file.fileno(), err_file.fileno(), writing]
            socket.send_fds(self._control, [request], descriptors)
        os.close(writing)
        status = os.fdopen(reading, "r", 1)
        return ForkedProcess(int(status.readline()), status)

    def close(self) -> None:
        """Stops the server; processes that it has forked continue."""
        self._control.close()
        self._process.wait()


class _ForkedBuilder(subprocess.Popen[bytes]):
    """The index builder that was forked before the trainer started."""

    def __init__(self, pid: int, stdin: Any, command: list[str]):
        self.pid, self.args, self.stdin = pid, command, stdin
        self.stdout = self.stderr = self.returncode = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True


def _serve(control: socket.socket) -> tuple[list[str], dict[str, str]]:
    """Forks one process per request.

    Returns only in a forked process, with the arguments and environment variables of its request.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST_BYTES, 3)
        if not request:
            sys.exit(0)
        if os.fork() == 0:
            control.close()
            _supervise(*descriptors)
            return json.loads(request)
        for number in descriptors:
            os.close(number)


def _supervise(out: int, err: int, status: int) -> None:
    """Forks the job and returns in it; the parent writes its pid and exit code to `status`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(status, f"{pid}\n".encode())
        _, code = os.waitpid(pid, 0)
        os.write(status, f"{os.waitstatus_to_exitcode(code)}\n".encode())
        os._exit(0)
    os.setsid()
    empty = os.open(os.devnull, os.O_RDONLY)
    for number, stream in ((empty, 0), (out, 1), (err, 2)):
        os.dup2(number, stream)
        os.close(number)
    os.close(status)


def _fork_builder(jobs: Any) -> list[str] | None:
    """Forks the index builder of `realm run` now, before the trainer has threads.

    Returns:
      None in the trainer, whose `jobs.start_process` now uses the forked builder. In the builder:
      its command-line arguments, as soon as the trainer starts it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        stdin = os.fdopen(writing, "wb", 0)

        def start(command: list[str], output: Any) -> _ForkedBuilder:
            stdin.write(json.dumps([command, output.name]).encode() + b"\n")
            return _ForkedBuilder(pid, stdin, command)

        jobs.start_process = start
        return None
    os.close(writing)
    os.dup2(reading, 0)
    line = b""
    while not line.endswith(b"\n"):  # byte by byte: the builder reads the rest of the pipe itself
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)  # the trainer ended without starting a builder
        line += byte
    command, log = json.loads(line)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    return command[command.index("index") :]


def _main() -> int:
    import realm_jax.index_builder.run
    import realm_jax.trainer.run  # noqa: F401 - imported once, for all forked processes
    from realm_jax.cli import jobs, main
    from realm_jax.storage import failpoints

    for verb in main.VERBS.values():
        import_module(f"realm_jax.cli.{verb.module}")
    arguments, variables = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.update(variables)
    logging.root.handlers.clear()  # as in a fresh process
    failpoints.arm_from_environment()
    if arguments[0] == "run":
        arguments = _fork_builder(jobs) or arguments
    return main.main(arguments)


if __name__ == "__main__":
    sys.exit(_main())
