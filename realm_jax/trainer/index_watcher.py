"""Opens newly published indexes in a background thread, one at a time."""

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
    """Opens indexes: process 0 the newest published one, other processes the one it proposes.

    An index that fails verification is refused, and the trainer keeps the old one. Any other
    error, such as a storage error, is retried. If it lasts longer than `refresh.wait_seconds`, the
    thread ends and `ready` raises the error; otherwise the trainer would search the same index
    until its last step.

    Args:
      run: the run folder.
      open_index: verifies, loads and leases the index of a step.
      refresh: `config.refresh`.
      poll_seconds: time between two polls.
      stop: ends the thread.

    Attributes:
      refused: the newest index step that failed verification.
      proposed: the index step that process 0 proposes.
    """

    def __init__(
        self,
        run: RunDir,
        open_index: Callable[[int], PublishedIndex],
        refresh: ConfigDict,
        poll_seconds: float,
        stop: threading.Event,
    ):
        self._run, self._open_index, self._poll, self._stop = run, open_index, poll_seconds, stop
        self._retry_seconds = refresh.wait_seconds
        self.refused: int | None = None
        self.proposed: int | None = None
        self._ready: PublishedIndex | None = None
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self, after: int) -> None:
        """Starts the thread on the first call; it opens indexes newer than that of step `after`."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, args=(after,), name="index watcher", daemon=True
            )
            self._thread.start()

    def ready(self) -> PublishedIndex | None:
        """The index that is open and not yet in use; raises the error that ended the thread."""
        if self._error is not None:
            raise self._error
        return self._ready

    def drop(self, index: PublishedIndex | None) -> None:
        """Forgets an index that is now in use or refused; a newer one that is ready stays."""
        with self._lock:
            if self._ready is index:
                self._ready = None

    def close(self) -> None:
        """Waits for the thread to end; set `stop` first."""
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _watch(self, after: int) -> None:
        failing_since = None
        while not self._stop.is_set():
            try:
                index_step = self._newer_than(after)
                if index_step is not None:
                    self._open(index_step)
                    after = index_step
                failing_since = None
            except Exception as error:  # noqa: BLE001 - `ready` raises it again
                if failing_since is None:
                    failing_since = time.monotonic()
                    log.warning("cannot read a newer index, retrying: %r", error)
                if time.monotonic() - failing_since > self._retry_seconds:
                    self._error = error
                    return
            self._stop.wait(self._poll)

    def _newer_than(self, after: int) -> int | None:
        newest = commit.latest(self._run.published_index) if hosts.is_leader() else self.proposed
        return newest if newest is not None and newest > after else None

    def _open(self, index_step: int) -> None:
        try:
            opened = self._open_index(index_step)
            with self._lock:
                self._ready = opened
        except RealmError as error:
            self.refused = index_step
            log.warning("index of step %d refused, keeping the old one:\n%s", index_step, error)
        # With several processes, the proposal stays until every process has opened or refused it.
        while hosts.process_count() > 1 and self._ready is not None and not self._stop.is_set():
            self._stop.wait(self._poll)
