"""Processes of one training job: how they connect, agree, and detect the loss of a process.

JAX connects the devices. In addition, every process has a socket to process 0. Over it, processes
exchange values that the hosts must agree on, such as a stop signal or the index to swap to. It also
ends all processes soon after one is lost; otherwise they would wait in a collective until JAX
aborts them.
"""

import contextlib
import json
import logging
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from realm_jax.errors import ConfigError, RealmError

EXIT_CODE = 76  # exit code after the loss of another process; rerun the command on all hosts
HEARTBEAT_SECONDS = 5.0  # time between two heartbeats
TIMEOUT_SECONDS = 60.0  # time without a heartbeat after which a process counts as lost
_GREETING_BYTES = 512
# Process 0 exits this many seconds after the others: when it exits, JAX aborts all processes.
_LEADER_DELAY_SECONDS = 1.0
_REPORT_SECONDS = 3.0  # within this time after a JAX error, the lost process is reported

log = logging.getLogger(__name__)


def join(coordinator: str, processes: int, process: int) -> None:
    """Connects this process to the others; call it once, before JAX runs any program.

    Args:
      coordinator: HOST:PORT of process 0; "auto" on Cloud TPU, where JAX knows all three arguments.
        With a loopback host (localhost, 127.x), no socket accepts connections of other machines.
      processes: number of processes.
      process: number of this process, from 0.

    Raises:
      ConfigError: the arguments contradict each other.
      RealmError: the other processes did not connect in time.
    """
    global _peers  # noqa: PLW0603 - one per process, like jax.distributed itself
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # we handle SIGTERM
    jax.config.update("jax_enable_recoverability", True)  # we report lost processes
    arguments: dict[str, Any] = {}
    host = socket.gethostname()
    if coordinator != "auto":
        _check(coordinator, processes, process)
        arguments = {"coordinator_address": coordinator, "num_processes": processes}
        arguments["process_id"] = process
        host = coordinator.rsplit(":", 1)[0]
        if _is_loopback(host):
            arguments["coordinator_bind_address"] = coordinator  # the default is every address
    try:
        jax.distributed.initialize(**arguments, shutdown_timeout_seconds=10)
    except RuntimeError as error:
        raise RealmError(
            "the processes could not connect",
            where=f"--coordinator={coordinator}",
            expected=f"{processes} processes with the same --coordinator and --processes",
            found=str(error).splitlines()[0],
            fix="start all processes, with process 0 on the coordinator's host",
        ) from error
    if jax.process_count() > 1:
        _peers = _Leader(host) if is_leader() else _Follower()


def _check(coordinator: str, processes: int, process: int) -> None:
    _, colon, port = coordinator.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= process < processes:
        raise ConfigError(
            "these flags do not describe a process of a job",
            where="--coordinator, --processes, --process",
            expected="HOST:PORT, and a process from 0 to processes - 1",
            found=f"{coordinator}, {processes}, {process}",
        )


def _is_loopback(host: str) -> bool:
    """Whether the name itself is a loopback address; it is not resolved."""
    return host == "localhost" or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def is_leader() -> bool:
    """Whether this is process 0, which writes manifests, logs and snapshots for all processes."""
    return jax.process_index() == 0


def process_index() -> int:
    """The number of this process."""
    return jax.process_index()


def process_count() -> int:
    """The number of processes of the job."""
    return jax.process_count()


def all_gather(topic: str, step: int, value: Any = None) -> list[Any]:
    """Sends a value to all processes and returns the values of all, by process number.

    Waits for the last process. Threads may call it at the same time, with different topics.

    Args:
      topic: what the value is about; each process calls this once per topic and step.
      step: the training step.
      value: anything that JSON can hold.
    """
    return [value] if _peers is None else _peers.all_gather(topic, step, value)


@contextlib.contextmanager
def membership() -> Iterator[None]:
    """Context of the job: on exit, tells the other processes that this one was not lost.

    A `RealmError` ends all processes. A JAX error usually follows the loss of another process,
    which is reported within seconds; so the report is awaited first.
    """
    try:
        yield
    except RealmError as error:
        _leave(f"stopped: {error}")
        raise
    except jax.errors.JaxRuntimeError:
        if _peers is not None:
            time.sleep(_REPORT_SECONDS)
            _leave("stopped on a JAX error; see its stderr")
        raise
    _leave(None)


def _leave(problem: str | None) -> None:
    if _peers is not None:
        with contextlib.suppress(OSError):
            _peers.leave(problem)


class _Connection:
    """A socket for JSON lines in both directions, with heartbeats.

    Args:
      connection: the socket.
      process: number of the process at the other end.
    """

    def __init__(self, connection: socket.socket, process: int):
        self.process, self._socket = process, connection
        connection.settimeout(TIMEOUT_SECONDS)
        self._send_lock = threading.Lock()
        self._reader = connection.makefile("r", encoding="utf-8")
        threading.Thread(target=self._beat, name="peer heartbeat", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Sends a message; raises OSError if the other end is lost."""
        with self._send_lock:
            self._socket.sendall((json.dumps(message) + "\n").encode())

    def receive(self) -> dict[str, Any]:
        """The next message; {} if the other end is lost or timed out."""
        try:
            line = self._reader.readline()
            return json.loads(line) if line.endswith("\n") else {}
        except (OSError, ValueError):
            return {}

    def _beat(self) -> None:
        try:
            while True:
                time.sleep(HEARTBEAT_SECONDS)
                self.send(beat=True)
        except OSError:
            return  # the thread that receives reports the loss


class _Peers:
    """What process 0 and the others share: pending results, and the exit after a loss."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, int], list[Any]] = {}
        self._changed = threading.Condition()
        self._leaving = False

    def _await(self, topic: str, step: int) -> list[Any]:
        with self._changed:
            self._changed.wait_for(lambda: (topic, step) in self._results)
            return self._results.pop((topic, step))

    def _set_result(self, topic: str, step: int, values: list[Any]) -> None:
        with self._changed:
            self._results[topic, step] = values
            self._changed.notify_all()

    def _exit(self, process: int, problem: str) -> None:
        """Exits at once: a collective that includes a lost process never returns."""
        sys.stderr.write(
            f"realm: process {process} of {jax.process_count()} {problem}; process "
            f"{jax.process_index()} exits too\n"
            "  fix: start all processes again with the same command; they resume from the newest "
            "checkpoint, on any number of hosts\n"
        )
        sys.stderr.flush()
        os._exit(EXIT_CODE)


class _Leader(_Peers):
    """Process 0: collects the values of all processes and sends the result to each."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._values: dict[tuple[str, int], dict[int, Any]] = {}
        self._collect_lock = threading.Lock()
        self._left: set[int] = set()
        address = host if _is_loopback(host) else ""
        server = socket.create_server((address, 0), backlog=jax.process_count())
        server.settimeout(TIMEOUT_SECONDS)
        token = secrets.token_hex(16)
        _broadcast([host, server.getsockname()[1], token])
        self._connections = [self._accept(server, token) for _ in range(jax.process_count() - 1)]
        server.close()
        for connection in self._connections:
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _accept(self, server: socket.socket, token: str) -> _Connection:
        while True:
            accepted, _ = server.accept()
            accepted.settimeout(TIMEOUT_SECONDS)
            connection = _Connection(accepted, -1)
            greeting = connection.receive()
            if secrets.compare_digest(str(greeting.get("token")), token):
                connection.process = int(greeting["process"])
                return connection
            accepted.close()  # not a process of this job

    def _listen(self, connection: _Connection) -> None:
        while True:
            message = connection.receive()
            if "value" in message:
                self._collect(connection.process, *message["value"])
            elif "leave" in message and message["leave"] is None:
                with self._changed:
                    self._left.add(connection.process)
                    self._changed.notify_all()
                return
            elif "beat" not in message:
                self._exit_all(connection.process, message.get("leave") or "is lost")

    def _collect(self, process: int, topic: str, step: int, value: Any) -> None:
        with self._collect_lock:
            values = self._values.setdefault((topic, step), {})
            values[process] = value
            if len(values) < jax.process_count():
                return
            del self._values[topic, step]
        result = [values[number] for number in range(len(values))]
        for connection in self._connections:
            connection.send(result=[topic, step, result])
        self._set_result(topic, step, result)

    def all_gather(self, topic: str, step: int, value: Any) -> list[Any]:
        self._collect(0, topic, step, json.loads(json.dumps(value)))
        return self._await(topic, step)

    def _exit_all(self, process: int, problem: str) -> None:
        for connection in self._connections:
            try:
                connection.send(lost=[process, problem])
            except OSError:
                continue
        time.sleep(_LEADER_DELAY_SECONDS)
        self._exit(process, problem)

    def leave(self, problem: str | None) -> None:
        """Waits for the others to leave first: JAX aborts them when process 0 exits."""
        if problem is not None:
            for connection in self._connections:
                connection.send(lost=[0, problem])
            return
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._left) == len(self._connections), timeout=TIMEOUT_SECONDS
            )
        for connection in self._connections:
            connection.send(leave=None)


class _Follower(_Peers):
    """Any process but process 0."""

    def __init__(self) -> None:
        super().__init__()
        host, port, token = _broadcast(None)
        connected = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
        self._connection = _Connection(connected, 0)
        self._connection.send(token=token, process=jax.process_index())
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            message = self._connection.receive()
            if "result" in message:
                self._set_result(*message["result"])
            elif "lost" in message:
                self._exit(*message["lost"])
            elif "beat" not in message:
                if not self._leaving:
                    self._exit(0, "is lost")
                return

    def all_gather(self, topic: str, step: int, value: Any) -> list[Any]:
        with contextlib.suppress(OSError):  # `_listen` reports the loss and exits
            self._connection.send(value=[topic, step, value])
        return self._await(topic, step)

    def leave(self, problem: str | None) -> None:
        self._leaving = True
        if problem is None:
            jax.distributed.shutdown()  # needs process 0, which waits for the message below
        self._connection.send(leave=problem)


_peers: _Leader | _Follower | None = None


def _broadcast(content: list[Any] | None) -> list[Any]:
    """Sends a short JSON list from process 0 to all, through JAX: no sockets are open yet."""
    text = np.zeros(_GREETING_BYTES, np.uint8)
    if content is not None:
        encoded = json.dumps(content).encode()
        text[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    received = np.asarray(multihost_utils.broadcast_one_to_all(text))
    return json.loads(bytes(received).rstrip(b"\0").decode())
