"""Process 0 and its followers: they exchange values, and end together after one is lost.

Process 0 keeps the unfinished agreements. It therefore knows which processes have not answered,
and tells all of them.
"""

import contextlib
import faulthandler
import json
import logging
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from realm_jax.parallel.connection import (
    TIMEOUT_SECONDS,
    Connection,
    Greetings,
    connect,
    named,
    new_token,
)

EXIT_CODE = 76  # exit code after the loss of another process; rerun the command on all hosts
# An agreement ends the job if a process has not answered for this long after the first one. Between
# two agreements a process may compile the step, load an index, or write and hash a checkpoint: each
# takes minutes.
AGREEMENT_SECONDS = 1800.0
WARNING_SECONDS = 60.0  # after this time, the processes that have not answered are logged
_BROADCAST_BYTES = 512
# Process 0 exits this many seconds after the others: when it exits, JAX aborts all processes.
_LEADER_DELAY_SECONDS = 1.0

log = logging.getLogger(__name__)
Agreement = tuple[str, int]  # topic and step


class _Peers:
    """What process 0 and the others share: pending results, and the exit after a loss."""

    def __init__(self) -> None:
        self._results: dict[Agreement, list[Any]] = {}
        self._changed = threading.Condition()

    def _await(self, agreement: Agreement) -> list[Any]:
        """Process 0 ends all processes if one does not answer; see `AGREEMENT_SECONDS`."""
        with self._changed:
            self._changed.wait_for(lambda: agreement in self._results)
            return self._results.pop(agreement)

    def _set_result(self, agreement: Agreement, values: list[Any]) -> None:
        with self._changed:
            self._results[agreement] = values
            self._changed.notify_all()

    def _exit(self, problem: str, processes: list[int]) -> None:
        """Exits at once: a collective that includes a lost process never returns.

        Args:
          problem: what the lost processes did or did not do.
          processes: the lost processes; if this is one of them, it shows where it waits.
        """
        me, count = jax.process_index(), jax.process_count()
        sys.stderr.write(
            f"realm: {named(processes)} of {count} {problem}; process {me} exits too\n"
            "  fix: start all processes again with the same command; they resume from the newest "
            "checkpoint, on any number of hosts\n"
        )
        if me in processes:
            faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_CODE)


@dataclass
class _Unfinished:
    """Values of the processes that have answered, and the time of the first one."""

    values: dict[int, Any] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)
    warned: bool = False

    def missing(self) -> list[int]:
        """The processes that have not answered."""
        return sorted(set(range(jax.process_count())) - self.values.keys())


class Leader(_Peers):
    """Process 0: collects the values of all processes and sends the result to each.

    Args:
      host: name under which the other processes reach this one.
      address: address to listen on; "" for all.
    """

    def __init__(self, host: str, address: str) -> None:
        super().__init__()
        self._unfinished: dict[Agreement, _Unfinished] = {}
        self._collect_lock = threading.Lock()
        self._left: set[int] = set()
        self._leaving = threading.Event()
        token, count = new_token(), jax.process_count()
        with socket.create_server((address, 0), backlog=count) as server:
            _broadcast([host, server.getsockname()[1], token])
            self._connections = Greetings(server, token, count).connections()
        for connection in self._connections:
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
        threading.Thread(target=self._watch, name="agreements", daemon=True).start()

    def _listen(self, connection: Connection) -> None:
        while True:
            message = connection.receive()
            if "value" in message:
                topic, step, value = message["value"]
                self._collect(connection.process, (topic, step), value)
            elif "leave" in message and message["leave"] is None:
                with self._changed:
                    self._left.add(connection.process)
                    self._changed.notify_all()
                return
            elif "beat" not in message:
                self._exit_all(message.get("leave") or "is lost", [connection.process])

    def _collect(self, process: int, agreement: Agreement, value: Any) -> None:
        with self._collect_lock:
            unfinished = self._unfinished.setdefault(agreement, _Unfinished())
            unfinished.values[process] = value
            if unfinished.missing():
                return
            del self._unfinished[agreement]
        result = [unfinished.values[number] for number in range(jax.process_count())]
        self._send_all(result=[*agreement, result])
        self._set_result(agreement, result)

    def all_gather(self, topic: str, step: int, value: Any) -> list[Any]:
        """See `hosts.all_gather`."""
        self._collect(0, (topic, step), json.loads(json.dumps(value)))
        return self._await((topic, step))

    def _watch(self) -> None:
        """Reports the processes that do not answer; ends the job after `AGREEMENT_SECONDS`."""
        while not self._leaving.wait(min(1.0, WARNING_SECONDS)):
            with self._collect_lock:
                pending = [(*item, item[1].missing()) for item in self._unfinished.items()]
            for (topic, step), unfinished, missing in pending:
                waited = time.monotonic() - unfinished.since
                if waited < WARNING_SECONDS:
                    continue
                what = f"not answered '{topic}' of step {step}"
                if waited > AGREEMENT_SECONDS:
                    self._exit_all(f"has {what} for {AGREEMENT_SECONDS:.0f} s", missing)
                if not unfinished.warned:
                    unfinished.warned = True
                    late = f"waiting for {named(missing)}: {what} for {WARNING_SECONDS:.0f} s"
                    log.warning(late)
                    self._send_all(late=late)

    def _send_all(self, **message: Any) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):  # `_listen` reports the loss
                connection.send(**message)

    def _exit_all(self, problem: str, processes: list[int]) -> None:
        self._send_all(lost=[problem, processes])
        time.sleep(_LEADER_DELAY_SECONDS)
        self._exit(problem, processes)

    def leave(self, problem: str | None) -> None:
        """Waits for the others to leave first: JAX aborts them when process 0 exits."""
        self._leaving.set()
        if problem is not None:
            self._send_all(lost=[problem, [0]])
            return
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._left) == len(self._connections), timeout=TIMEOUT_SECONDS
            )
        self._send_all(leave=None)


class Follower(_Peers):
    """Any process but process 0."""

    def __init__(self) -> None:
        super().__init__()
        self._leaving = False
        self._failed = False  # ends with an error of its own
        host, port, token = _broadcast(None)
        self._connection = connect(host, port, token, jax.process_index())
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            message = self._connection.receive()
            if "result" in message:
                topic, step, values = message["result"]
                self._set_result((topic, step), values)
            elif "late" in message:
                log.warning(message["late"])
            elif "lost" in message:
                if not self._failed:
                    self._exit(*message["lost"])
            elif "beat" not in message:
                if not self._leaving:
                    self._exit("is lost", [0])
                return

    def all_gather(self, topic: str, step: int, value: Any) -> list[Any]:
        """See `hosts.all_gather`."""
        with contextlib.suppress(OSError):  # `_listen` reports the loss and exits
            self._connection.send(value=[topic, step, value])
        return self._await((topic, step))

    def leave(self, problem: str | None) -> None:
        """Tells process 0 that this process ends, and why."""
        self._leaving, self._failed = True, problem is not None
        if problem is None:
            jax.distributed.shutdown()  # needs process 0, which waits for the message below
        with contextlib.suppress(OSError):
            self._connection.send(leave=problem)


def _broadcast(content: list[Any] | None) -> list[Any]:
    """Sends a short JSON list from process 0 to all, through JAX: no sockets are open yet."""
    text = np.zeros(_BROADCAST_BYTES, np.uint8)
    if content is not None:
        encoded = json.dumps(content).encode()
        text[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    received = np.asarray(multihost_utils.broadcast_one_to_all(text))
    return json.loads(bytes(received).rstrip(b"\0").decode())
