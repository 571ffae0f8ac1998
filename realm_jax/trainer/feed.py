"""Batches made and sent to the devices ahead of the step, in order, by one thread."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Sharding

AHEAD = 2  # batches ready before they are asked for


class Feed:
    """Runs `make(step)` for consecutive steps in a thread; `take` hands them out."""

    def __init__(self, make: Callable[[int], Any], place: Sharding, first: int, last: int):
        self._ready: queue.Queue[tuple[int, Any]] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(make, place, first, last), name="feed", daemon=True
        )
        self._thread.start()

    def _run(self, make: Callable[[int], Any], place: Sharding, first: int, last: int) -> None:
        for step in range(first, last):
            try:
                made: Any = jax.device_put(make(step), place)
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

    def take(self, step: int, stop: threading.Event) -> Any | None:
        """The batch of `step`, on the devices; raises what making it raised.

        None if `stop` was set while there was none: what makes it may be waiting for the index
        builder, and what then goes wrong is met again when the run goes on.
        """
        item = self._next(stop)
        if item is None or (isinstance(item[1], Exception) and stop.is_set()):
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
        """Stops the thread; batches made and not taken are dropped."""
        self._closed.set()
        self._thread.join(timeout=30)
