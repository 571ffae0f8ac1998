"""Opens newly published indexes beside the training, one at a time, in a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable

from ml_collections import ConfigDict

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.errors import RealmError
from realm_jax.parallel import hosts
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir

log = logging.getLogger(__name__)


class IndexWatcher:
    """Process 0 opens what is published; the others what it offers, so that all can swap at once.

    An index that is not sound is refused, and the old one stays. Whatever else goes wrong, as when
    a storage fails, is tried again, and raised where the index is asked for once it has lasted: a
    trainer whose watcher is dead would search the same index for ever.

    Args:
      run: the run folder.
      opened: verifies, loads and leases the index of a step.
      refresh: `config.refresh`; trouble may last its `wait_seconds`.
      poll_seconds: between two looks.
      stop: ends the thread.

    Attributes:
      refused: the newest index step that could not be opened.
      asked: the index step that process 0 offers.
    """

    def __init__(
        self,
        run: RunDir,
        opened: Callable[[int], PublishedIndex],
        refresh: ConfigDict,
        poll_seconds: float,
        stop: threading.Event,
    ):
        self._run, self._opened, self._poll, self._stop = run, opened, poll_seconds, stop
        self._patience = refresh.wait_seconds
        self.refused: int | None = None
        self.asked: int | None = None
        self._fresh: PublishedIndex | None = None
        self._one_at_a_time = threading.Lock()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self, after: int) -> None:
        """Looks for indexes newer than that of step `after` from now on; once."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, args=(after,), name="index watcher", daemon=True
            )
            self._thread.start()

    def ready(self) -> PublishedIndex | None:
        """What is opened and not yet taken; raises what ended the thread."""
        if self._failure is not None:
            raise self._failure
        return self._fresh

    def take(self, index: PublishedIndex | None) -> None:
        """What was ready is in use now, or will never be; a newer one stays."""
        with self._one_at_a_time:
            if self._fresh is index:
                self._fresh = None

    def close(self) -> None:
        """Waits for the thread, once `stop` is set."""
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _watch(self, after: int) -> None:
        since = None  # when trouble began
        while not self._stop.is_set():
            try:
                index_step = self._newer_than(after)
                if index_step is not None:
                    self._open(index_step)
                    after = index_step
                since = None
            except Exception as error:  # noqa: BLE001 - it is raised again by `ready`
                if since is None:
                    since = time.monotonic()
                    log.warning("no newer index can be read now, trying on: %r", error)
                if time.monotonic() - since > self._patience:
                    self._failure = error
                    return
            self._stop.wait(self._poll)

    def _newer_than(self, after: int) -> int | None:
        newest = commit.latest(self._run.published_index) if hosts.is_leader() else self.asked
        return newest if newest is not None and newest > after else None

    def _open(self, index_step: int) -> None:
        try:
            opened = self._opened(index_step)
            with self._one_at_a_time:
                self._fresh = opened
        except RealmError as error:
            self.refused = index_step
            log.warning("index of step %d refused, the old one stays:\n%s", index_step, error)
        while hosts.process_count() > 1 and self._fresh is not None and not self._stop.is_set():
            self._stop.wait(self._poll)  # what is offered stands until all have answered
