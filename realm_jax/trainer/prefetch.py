"""Provides the batch of each step on the devices: prefetched by a thread, or built on demand."""

import queue
import threading
from collections.abc import Callable
from typing import Any

from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.trainer.index_wait import WaitInterrupted

AHEAD = 2  # batches that wait in the queue


class Prefetcher:
    """Builds the batches of consecutive steps in a thread.

    Args:
      build: from a step to its batch on the devices.
      first: the first step.
      last: one past the last step.
      may_end: whether the stage may end before a step. The batch of that step is built when `get`
        asks for it: otherwise a process could wait for others that have ended, and build none.
    """

    def __init__(
        self,
        build: Callable[[int], Any],
        first: int,
        last: int,
        may_end: Callable[[int], bool] = lambda step: False,
    ):
        self._build, self._may_end = build, may_end
        self._asked = threading.Condition()
        self._asked_for = first
        self._queue: queue.Queue[tuple[int, Any]] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(first, last), name="prefetch", daemon=True
        )
        self._thread.start()

    def _run(self, first: int, last: int) -> None:
        for step in range(first, last):
            if self._may_end(step) and not self._is_asked_for(step):
                return
            try:
                result: Any = self._build(step)
            except Exception as error:  # noqa: BLE001 - `get` raises it again
                result = error
            if not self._put((step, result)) or isinstance(result, Exception):
                return

    def _is_asked_for(self, step: int) -> bool:
        """Waits until the loop asks for the batch of `step`; False if the stage has ended."""
        with self._asked:
            self._asked.wait_for(lambda: self._asked_for >= step or self._closed.is_set())
        return not self._closed.is_set()

    def _put(self, item: tuple[int, Any]) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def get(self, step: int, stop: threading.Event, _: Parameters) -> Any | None:
        """The batch of `step`, on the devices; raises the error that building it raised.

        Returns None if the stop signal came before the batch was ready: the thread may be waiting
        for the index builder. An error that comes after the stop signal is dropped; it will be
        raised again when the run is resumed.
        """
        with self._asked:
            self._asked_for = step
            self._asked.notify()
        item = self._next(stop)
        if item is None or (isinstance(item[1], Exception) and stop.is_set()):
            return None
        if isinstance(item[1], WaitInterrupted):  # another process was stopped
            return None
        built_for, result = item
        if isinstance(result, Exception):
            raise result
        assert built_for == step, f"prefetched step {built_for}, asked for step {step}"
        return result

    def _next(self, stop: threading.Event) -> tuple[int, Any] | None:
        while True:
            try:
                return self._queue.get(timeout=0.1)
            except queue.Empty:
                if stop.is_set():
                    return None

    def close(self) -> None:
        """Stops the thread; batches in the queue are dropped.

        With several processes, the thread may be waiting for the answer of a process that has
        already stopped, so it is joined for two seconds only.
        """
        with self._asked:
            self._closed.set()
            self._asked.notify()
        self._thread.join(timeout=30 if hosts.process_count() == 1 else 2)


class InlineBatches:
    """Builds each batch on demand, in the thread of the training loop.

    Stages use it if building a batch runs programs on the devices. Programs over several processes
    must start in the same order in each, so none may start in another thread. A search with fresh
    params also needs the params of its step.

    Args:
      build: from a step and its params to the batch on the devices.
    """

    def __init__(self, build: Callable[[int, Parameters], Any]):
        self._build = build

    def get(self, step: int, stop: threading.Event, params: Parameters) -> Any | None:
        """The batch of `step`, on the devices; None if a stop signal ended the wait for an index.

        `stop` is not read here: all processes must build the batch, or none.
        """
        try:
            return self._build(step, params)
        except WaitInterrupted:
            return None

    def close(self) -> None:
        """Does nothing."""
