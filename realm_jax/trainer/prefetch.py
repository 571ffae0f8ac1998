"""Batches on the devices, in order: made ahead of the step by one thread, or when it is due."""

import queue
import threading
from collections.abc import Callable
from typing import Any

from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.trainer.index_manager import WaitInterrupted

AHEAD = 2  # batches ready before they are asked for


class Prefetcher:
    """Runs `make(step)` for consecutive steps in a thread; `take` hands them out."""

    def __init__(self, make: Callable[[int], Any], first: int, last: int):
        self._ready: queue.Queue[tuple[int, Any]] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(make, first, last), name="feed", daemon=True
        )
        self._thread.start()

    def _run(self, make: Callable[[int], Any], first: int, last: int) -> None:
        for step in range(first, last):
            try:
                made: Any = make(step)
            except Exception as error:  # noqa: BLE001 - it is raised again by `take`
                made = error
            if not self._offer((step, made)) or isinstance(made, Exception):
                return

    def _offer(self, item: tuple[int, Any]) -> bool:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def take(self, step: int, stop: threading.Event, _: Parameters) -> Any | None:
        """The batch of `step`, on the devices; raises what making it raised.

        None if `stop` was set while there was none: what makes it may be waiting for the index
        builder, and what then goes wrong is met again when the run goes on.
        """
        item = self._next(stop)
        if item is None or (isinstance(item[1], Exception) and stop.is_set()):
            return None
        if isinstance(item[1], WaitInterrupted):  # another process was stopped
            return None
        number, made = item
        if isinstance(made, Exception):
            raise made
        assert number == step, f"the feed is at step {number}, the loop at {step}"
        return made

    def _next(self, stop: threading.Event) -> tuple[int, Any] | None:
        while True:
            try:
                return self._ready.get(timeout=0.1)
            except queue.Empty:
                if stop.is_set():
                    return None

    def close(self) -> None:
        """Stops the thread; batches made and not taken are dropped.

        One of several processes may stop before it comes to what another's thread waits to agree
        on.
        """
        self._closed.set()
        self._thread.join(timeout=30 if hosts.process_count() == 1 else 2)


class InlineBatches:
    """Makes a batch when it is due, in the thread of the steps: it takes the devices to make it.

    Programs over several processes must start in the same order in each, so none may start beside
    the steps; and a search with fresh parameters needs those of the step.
    """

    def __init__(self, make: Callable[[int, Parameters], Any]):
        self._make = make

    def take(self, step: int, stop: threading.Event, parameters: Parameters) -> Any | None:
        """The batch of `step`, on the devices; None if `stop` came while it was being made."""
        try:
            return self._make(step, parameters)
        except WaitInterrupted:
            return None

    def close(self) -> None:
        """Does nothing."""
