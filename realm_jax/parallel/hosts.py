"""Processes of one training job: how they connect, agree, and detect the loss of a process.

JAX connects the devices. In addition, every process has a socket to process 0. Over it, processes
exchange values that the hosts must agree on, such as a stop signal or the index to swap to. It also
ends all processes soon after one is lost; otherwise they would wait in a collective until JAX
aborts them.
"""

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax

from realm_jax.errors import ConfigError, RealmError
from realm_jax.parallel.peers import Follower, Leader

_REPORT_SECONDS = 3.0  # within this time after a JAX error, the lost process is reported
T = TypeVar("T")
_peers: Leader | Follower | None = None  # set by `join`


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
        address = host if _is_loopback(host) else ""
        _peers = Leader(host, address) if is_leader() else Follower()


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

    Waits for the last process. If one has not answered after `peers.AGREEMENT_SECONDS`, all
    processes end with a message that names it. Threads may call it at the same time, with different
    topics.

    Args:
      topic: what the value is about; each process calls this once per topic and step.
      step: the training step.
      value: anything that JSON can hold.
    """
    return [value] if _peers is None else _peers.all_gather(topic, step, value)


def agreed(topic: str, step: int, decide: Callable[[], T]) -> T:
    """Calls `decide` in process 0 and returns its result in all processes.

    Every branch that leads to a collective or to another agreement, and that depends on the storage
    or on a clock, is decided this way. If `decide` raises an error, all processes end.

    Args:
      topic: see `all_gather`.
      step: see `all_gather`.
      decide: returns a value that JSON can hold; tuples become lists.
    """
    decided: T = all_gather(topic, step, decide() if is_leader() else None)[0]
    return decided


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
