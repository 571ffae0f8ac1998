"""Several processes that train as one: how they join, agree, and learn that one is gone.

Devices talk through jax. This is the other line: a socket from every process to process 0, for what
hosts must agree on (stop now? swap to which index?) and for one thing jax does not do: to say at
once, and in words, that a process is gone. Without it the others would wait in a collective until
jax aborts them.
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

EXIT_CODE = 76  # of a process whose peer is gone; the same command on all hosts goes on
BEAT = 5.0  # seconds between signs of life
SILENCE = 60.0  # seconds without any after which a process counts as gone
_GREETING = 512  # bytes
_LAST = 1.0  # seconds that process 0 outlives the others: with it goes what jax hangs on
_ECHO = 3.0  # seconds within which a lost process is named

log = logging.getLogger(__name__)


def join(coordinator: str, processes: int, process: int) -> None:
    """Makes this process one of several; call it once, before jax does any work.

    Args:
      coordinator: HOST:PORT of process 0; "auto" on Cloud TPU, where jax knows all three. Where it
        names this machine alone (localhost, 127.x), nothing listens to others either.
      processes: how many there are.
      process: which one this is.

    Raises:
      ConfigError: numbers that cannot be.
      RealmError: the others did not come.
    """
    global _peers  # noqa: PLW0603 - one per process, like jax.distributed itself
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours
    jax.config.update("jax_enable_recoverability", True)  # who is gone is said below, in words
    named: dict[str, Any] = {}
    host = socket.gethostname()
    if coordinator != "auto":
        _check(coordinator, processes, process)
        named = {"coordinator_address": coordinator, "num_processes": processes}
        named["process_id"] = process
        host = coordinator.rsplit(":", 1)[0]
        if _only_here(host):
            named["coordinator_bind_address"] = coordinator  # without it, every address
    try:
        jax.distributed.initialize(**named, shutdown_timeout_seconds=10)
    except RuntimeError as error:
        raise RealmError(
            "the processes did not find each other",
            where=f"--coordinator={coordinator}",
            expected=f"{processes} processes with the same --coordinator and --processes",
            found=str(error).splitlines()[0],
            fix="start all of them, process 0 on the host that the coordinator names",
        ) from error
    if jax.process_count() > 1:
        _peers = _Leader(host) if is_leader() else _Follower()


def _check(coordinator: str, processes: int, process: int) -> None:
    _, colon, port = coordinator.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= process < processes:
        raise ConfigError(
            "these are not processes of one job",
            where="--coordinator, --processes, --process",
            expected="HOST:PORT, and a process from 0 to processes - 1",
            found=f"{coordinator}, {processes}, {process}",
        )


def _only_here(host: str) -> bool:
    """Whether it says in its letters that no other machine is meant."""
    return host == "localhost" or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def is_leader() -> bool:
    """Whether this process writes what one alone may write: manifests, logs, snapshots."""
    return jax.process_index() == 0


def process_index() -> int:
    """The number of this process."""
    return jax.process_index()


def process_count() -> int:
    """How many processes train as one."""
    return jax.process_count()


def all_gather(topic: str, step: int, value: Any = None) -> list[Any]:
    """What every process said about `topic` at `step`, by process; waits for the last of them.

    Each process asks once for each topic and step. `value` goes through JSON.
    """
    return [value] if _peers is None else _peers.all_gather(topic, step, value)


@contextlib.contextmanager
def membership() -> Iterator[None]:
    """Around the work: says goodbye, so that the others do not take its end for a loss.

    An error of ours ends all processes. One of jax is most often the echo of a lost process, and
    whoever is lost is named within moments; so it is waited for.
    """
    try:
        yield
    except RealmError as error:
        _leave(f"stopped: {error}")
        raise
    except jax.errors.JaxRuntimeError:
        if _peers is not None:
            time.sleep(_ECHO)
            _leave("stopped on an error of jax; its own words are on its stderr")
        raise
    _leave(None)


def _leave(problem: str | None) -> None:
    if _peers is not None:
        with contextlib.suppress(OSError):
            _peers.leave(problem)


class _Line:
    """A socket that carries JSON lines both ways and never is silent for long."""

    def __init__(self, connection: socket.socket, process: int):
        self.process, self._socket = process, connection
        connection.settimeout(SILENCE)
        self._one_writer = threading.Lock()
        self._reader = connection.makefile("r", encoding="utf-8")
        threading.Thread(target=self._beat, name="beat", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Raises OSError once the other end is gone."""
        with self._one_writer:
            self._socket.sendall((json.dumps(message) + "\n").encode())

    def receive(self) -> dict[str, Any]:
        """The next message; {} once the other end is gone or silent."""
        try:
            line = self._reader.readline()
            return json.loads(line) if line.endswith("\n") else {}
        except (OSError, ValueError):
            return {}

    def _beat(self) -> None:
        try:
            while True:
                time.sleep(BEAT)
                self.send(beat=True)
        except OSError:
            return  # the reader of this line says what that means


class _Peers:
    """What both ends share: answers waited for, and the end."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int], list[Any]] = {}
        self._news = threading.Condition()
        self._leaving = False

    def _await(self, topic: str, step: int) -> list[Any]:
        with self._news:
            self._news.wait_for(lambda: (topic, step) in self._answers)
            return self._answers.pop((topic, step))

    def _answer(self, topic: str, step: int, values: list[Any]) -> None:
        with self._news:
            self._answers[topic, step] = values
            self._news.notify_all()

    def _lost(self, process: int, problem: str) -> None:
        """Ends this process at once: the collectives of a lost peer cannot be waited out."""
        sys.stderr.write(
            f"realm: process {process} of {jax.process_count()} {problem}; process "
            f"{jax.process_index()} stops too\n"
            "  fix: start all processes again with the same command; they go on from the newest "
            "checkpoint, on as many hosts as you like\n"
        )
        sys.stderr.flush()
        os._exit(EXIT_CODE)


class _Leader(_Peers):
    """Process 0: collects what all say, and tells all."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._said: dict[tuple[str, int], dict[int, Any]] = {}
        self._collecting = threading.Lock()
        self._gone: set[int] = set()
        address = host if _only_here(host) else ""
        server = socket.create_server((address, 0), backlog=jax.process_count())
        server.settimeout(SILENCE)
        token = secrets.token_hex(16)
        _broadcast([host, server.getsockname()[1], token])
        self._lines = [self._accept(server, token) for _ in range(jax.process_count() - 1)]
        server.close()
        for line in self._lines:
            threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _accept(self, server: socket.socket, token: str) -> _Line:
        while True:
            connection, _ = server.accept()
            connection.settimeout(SILENCE)
            line = _Line(connection, -1)
            hello = line.receive()
            if secrets.compare_digest(str(hello.get("token")), token):
                line.process = int(hello["process"])
                return line
            connection.close()  # a stranger

    def _listen(self, line: _Line) -> None:
        while True:
            message = line.receive()
            if "say" in message:
                self._say(line.process, *message["say"])
            elif "leave" in message and message["leave"] is None:
                with self._news:
                    self._gone.add(line.process)
                    self._news.notify_all()
                return
            elif "beat" not in message:
                self._end_all(line.process, message.get("leave") or "is gone")

    def _say(self, process: int, topic: str, step: int, value: Any) -> None:
        with self._collecting:
            said = self._said.setdefault((topic, step), {})
            said[process] = value
            if len(said) < jax.process_count():
                return
            del self._said[topic, step]
        values = [said[number] for number in range(len(said))]
        for line in self._lines:
            line.send(answer=[topic, step, values])
        self._answer(topic, step, values)

    def all_gather(self, topic: str, step: int, value: Any) -> list[Any]:
        self._say(0, topic, step, json.loads(json.dumps(value)))
        return self._await(topic, step)

    def _end_all(self, process: int, problem: str) -> None:
        for line in self._lines:
            try:
                line.send(lost=[process, problem])
            except OSError:
                continue
        time.sleep(_LAST)
        self._lost(process, problem)

    def leave(self, problem: str | None) -> None:
        """Waits for the others to leave, since they end when this process does."""
        if problem is not None:
            for line in self._lines:
                line.send(lost=[0, problem])
            return
        with self._news:
            self._news.wait_for(lambda: len(self._gone) == len(self._lines), timeout=SILENCE)
        for line in self._lines:
            line.send(leave=None)


class _Follower(_Peers):
    """Any other process."""

    def __init__(self) -> None:
        super().__init__()
        host, port, token = _broadcast(None)
        connection = socket.create_connection((host, port), timeout=SILENCE)
        self._line = _Line(connection, 0)
        self._line.send(token=token, process=jax.process_index())
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            message = self._line.receive()
            if "answer" in message:
                self._answer(*message["answer"])
            elif "lost" in message:
                self._lost(*message["lost"])
            elif "beat" not in message:
                if not self._leaving:
                    self._lost(0, "is gone")
                return

    def all_gather(self, topic: str, step: int, value: Any) -> list[Any]:
        with contextlib.suppress(OSError):  # the listener says who is gone, and ends this process
            self._line.send(say=[topic, step, value])
        return self._await(topic, step)

    def leave(self, problem: str | None) -> None:
        self._leaving = True
        if problem is None:
            jax.distributed.shutdown()  # needs process 0, which waits for what is said next
        self._line.send(leave=problem)


_peers: _Leader | _Follower | None = None


def _broadcast(content: list[Any] | None) -> list[Any]:
    """A short JSON list from process 0 to all, through jax: nothing else connects them yet."""
    text = np.zeros(_GREETING, np.uint8)
    if content is not None:
        encoded = json.dumps(content).encode()
        text[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    told = np.asarray(multihost_utils.broadcast_one_to_all(text))
    return json.loads(bytes(told).rstrip(b"\0").decode())
