"""Sockets between the processes of a job: an authenticated greeting, then JSON lines both ways."""

import contextlib
import json
import secrets
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from realm_jax.errors import RealmError

HEARTBEAT_SECONDS = 5.0  # time between two heartbeats
TIMEOUT_SECONDS = 60.0  # time without a heartbeat after which a process counts as lost
GREETING_SECONDS = 10.0  # a process sends its greeting as soon as it is connected
_TOKEN_BYTES = 32
_NUMBER_BYTES = 8
_MAX_UNGREETED = 256  # connections without a greeting; above it, the oldest is closed
_MAX_MESSAGE_BYTES = 1 << 26  # the longest value is the swap log of a run, some 20 bytes per swap


class Connection:
    """A socket for JSON lines in both directions, with heartbeats.

    Args:
      connected: the socket; its other end is authenticated.
      process: number of the process at the other end.
    """

    def __init__(self, connected: socket.socket, process: int):
        self.process, self._socket = process, connected
        connected.settimeout(TIMEOUT_SECONDS)
        self._send_lock = threading.Lock()
        self._reader = connected.makefile("rb")
        threading.Thread(target=self._beat, name="peer heartbeat", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Sends a message; raises OSError if the other end is lost."""
        with self._send_lock:
            self._socket.sendall((json.dumps(message) + "\n").encode())

    def receive(self) -> dict[str, Any]:
        """The next message; {} if the other end is lost, timed out, or sent something else."""
        try:
            line = self._reader.readline(_MAX_MESSAGE_BYTES)
            message = json.loads(line) if line.endswith(b"\n") else {}
        except (OSError, ValueError):
            return {}
        return message if isinstance(message, dict) else {}

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # the thread that receives reports the loss
            while True:
                time.sleep(HEARTBEAT_SECONDS)
                self.send(beat=True)


def new_token() -> str:
    """A secret that only the processes of one job know."""
    return secrets.token_hex(_TOKEN_BYTES // 2)


def connect(host: str, port: int, token: str, process: int) -> Connection:
    """Connects process number `process` to process 0.

    Raises:
      RealmError: process 0 cannot be reached.
    """
    try:
        connected = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
        connected.sendall(_greeting(token, process))
    except OSError as error:
        raise RealmError(
            "this process cannot connect to process 0",
            where=f"{host}:{port}",
            expected="a TCP connection",
            found=str(error),
            fix="allow connections between the hosts on all ports above 1023",
        ) from error
    return Connection(connected, 0)


def _greeting(token: str, process: int) -> bytes:
    return f"{token}{process:0{_NUMBER_BYTES}d}".encode()


@dataclass
class _Ungreeted:
    """A connection whose greeting is not complete."""

    deadline: float
    received: bytearray = field(default_factory=bytearray)


class Greetings:
    """Waits until all other processes have connected to process 0.

    Anyone on the network can connect. A greeting is the token and the number of the process, and
    has a fixed length. A connection that sends something else, or too slowly, is closed. One thread
    reads all greetings, so no connection delays another.

    Args:
      server: the listening socket.
      token: see `new_token`.
      processes: number of processes of the job.
    """

    def __init__(self, server: socket.socket, token: str, processes: int):
        self._server, self._token, self._processes = server, token, processes
        self._joined: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()

    def connections(self) -> list[Connection]:
        """The connections to processes 1, 2, ...

        Raises:
          RealmError: a process did not connect within `TIMEOUT_SECONDS`.
        """
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            while len(self._joined) < self._processes - 1:
                if time.monotonic() > deadline:
                    raise self._missing()
                for key, _ in self._selector.select(timeout=0.1):
                    if key.data is None:
                        self._accept()
                    else:
                        self._read(key.fileobj, key.data)  # type: ignore[arg-type]
                self._close_late(time.monotonic())
        finally:
            for late, _ in self._ungreeted():
                self._close(late)
            self._selector.close()
        return [Connection(self._joined[number], number) for number in sorted(self._joined)]

    def _ungreeted(self) -> list[tuple[socket.socket, _Ungreeted]]:
        """Connections without a complete greeting, oldest first."""
        keys = self._selector.get_map().values()
        found: list[Any] = [(key.fileobj, key.data) for key in keys if key.data is not None]
        return sorted(found, key=lambda one: one[1].deadline)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the other end has already closed it
            accepted, _ = self._server.accept()
            accepted.setblocking(False)
            data = _Ungreeted(time.monotonic() + GREETING_SECONDS)
            self._selector.register(accepted, selectors.EVENT_READ, data)

    def _read(self, connected: socket.socket, ungreeted: _Ungreeted) -> None:
        missing = _TOKEN_BYTES + _NUMBER_BYTES - len(ungreeted.received)
        try:
            received = connected.recv(missing)
        except OSError:
            received = b""
        ungreeted.received += received
        if received and len(received) < missing:
            return
        process = self._process(bytes(ungreeted.received))
        if process is None:
            self._close(connected)
        else:
            self._selector.unregister(connected)
            self._joined[process] = connected

    def _process(self, greeting: bytes) -> int | None:
        """The process that sent this greeting; None if it is none that is still missing."""
        for process in set(range(1, self._processes)) - self._joined.keys():
            if secrets.compare_digest(greeting, _greeting(self._token, process)):
                return process
        return None

    def _close_late(self, now: float) -> None:
        ungreeted = self._ungreeted()
        surplus = len(ungreeted) - _MAX_UNGREETED
        for number, (connected, data) in enumerate(ungreeted):
            if number < surplus or data.deadline < now:
                self._close(connected)

    def _close(self, connected: socket.socket) -> None:
        self._selector.unregister(connected)
        connected.close()

    def _missing(self) -> RealmError:
        missing = sorted(set(range(1, self._processes)) - self._joined.keys())
        return RealmError(
            "not all processes have connected to process 0",
            where=f"port {self._server.getsockname()[1]}",
            expected=f"{self._processes - 1} connections within {TIMEOUT_SECONDS:.0f} s",
            found=f"none of {named(missing)}",
            fix="allow connections between the hosts on all ports above 1023",
        )


def named(processes: list[int]) -> str:
    """For messages: "process 1", "processes 1, 2"."""
    noun = "process" if len(processes) == 1 else "processes"
    return f"{noun} {', '.join(map(str, sorted(processes)))}"
