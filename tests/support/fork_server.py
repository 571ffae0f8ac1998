"""Real `realm` processes without seconds of imports: forked off one that has imported everything.

The fork server starts no thread and no jax backend, so what it forks differs from a fresh process
in its start only: it has a pid, a session and standard streams of its own, and dies of any
signal. The index builder of `realm run` is a child of its trainer, as ever: it is forked before the trainer
does anything, and waits on the standard input that the trainer holds open for it.
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

_MOST = 1 << 16  # bytes of a request


class Forked:
    """A process of the fork_server, in the words of `subprocess.Popen`."""

    def __init__(self, pid: int, status: Any):
        self.pid, self._status = pid, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has one; raises subprocess.TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Does nothing to a process that has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """Starts `realm` processes; `environment` is that of all of them."""

    def __init__(self, environment: dict[str, str]):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one = threading.Lock()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "support.fork_server", str(number)]
            found = environment | {"PYTHONPATH": str(Path(__file__).parents[1])}
            self._process = subprocess.Popen(command, pass_fds=[number], env=found)

    def start(self, arguments: list[str], added: dict[str, str], out: Path, err: Path) -> Forked:
        """Forks `realm ARGUMENTS`, with `added` in its environment and its output in files."""
        reading, writing = os.pipe()
        with self._one, out.open("w") as out_file, err.open("w") as err_file:
            request = json.dumps([arguments, added]).encode()
            passed = [out_file.fileno(), err_file.fileno(), writing]
            socket.send_fds(self._control, [request], passed)
        os.close(writing)
        status = os.fdopen(reading, "r", 1)
        return Forked(int(status.readline()), status)

    def close(self) -> None:
        """Ends the fork_server; what it has forked goes on."""
        self._control.close()
        self._process.wait()


class _ForkedBuilder(subprocess.Popen[bytes]):
    """The builder that was forked ahead, once it has been told what to do."""

    def __init__(self, pid: int, stdin: Any, command: list[str]):
        self.pid, self.args, self.stdin = pid, command, stdin
        self.stdout = self.stderr = self.returncode = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True


def _serve(control: socket.socket) -> tuple[list[str], dict[str, str]]:
    """Returns in each forked job, with its arguments and environment; never in the fork_server."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    while True:
        request, passed, _, _ = socket.recv_fds(control, _MOST, 3)
        if not request:
            sys.exit(0)
        if os.fork() == 0:
            control.close()
            _supervise(*passed)
            return json.loads(request)
        for number in passed:
            os.close(number)


def _supervise(out: int, err: int, status: int) -> None:
    """Forks the job, and returns in it; this process says how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(status, f"{pid}\n".encode())
        _, code = os.waitpid(pid, 0)
        os.write(status, f"{os.waitstatus_to_exitcode(code)}\n".encode())
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, stream in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(number, stream)
        os.close(number)
    os.close(status)


def _fork_builder(jobs: Any) -> list[str] | None:
    """Makes `realm run` use a builder forked here; in that builder, returns its arguments."""
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
    while not line.endswith(b"\n"):  # byte by byte: the builder goes on reading where this ends
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)  # no builder was needed
        line += byte
    command, log = json.loads(line)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    return command[command.index("index") :]


def _main() -> int:
    import realm_jax.index_builder.run
    import realm_jax.trainer.run  # noqa: F401 - imported for all to come
    from realm_jax.cli import jobs, main
    from realm_jax.storage import failpoints

    for verb in main.VERBS.values():
        import_module(f"realm_jax.cli.{verb.module}")
    arguments, added = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.update(added)
    logging.root.handlers.clear()  # a fresh process has none yet
    failpoints.arm_from_environment()
    if arguments[0] == "run":
        arguments = _fork_builder(jobs) or arguments
    return main.main(arguments)


if __name__ == "__main__":
    sys.exit(_main())
