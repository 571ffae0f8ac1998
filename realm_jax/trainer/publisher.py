"""Publishes snapshots of the params; a step waits for the copy to the host, not for the disk."""

import threading
import time
from collections.abc import Callable
from typing import Any

from jax.sharding import Mesh

from realm_jax.artifacts.snapshots import publish_snapshot
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.rows import Rows, query_rows
from realm_jax.errors import RealmError
from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import gather_to_host
from realm_jax.storage.layout import SNAPSHOTS, RunDir
from realm_jax.storage.leases import retain


def probe_queries(held_out: MaskedTextSource, text: MaskedTextSource, count: int) -> Rows:
    """At most `count` masked sentences [B, Q], held out if any held-out passage has one.

    Without any masked sentence they are the first sentences of passages.
    """
    for source in (held_out, text):
        queries = source.first(count).queries
        if len(queries.ids):
            return queries
    store = text.store
    rows = store.live_ids()[:count].tolist()
    sentences = [store.body_ids(row)[: store.sentences(row)[1]] for row in rows]
    return query_rows(sentences, text.lengths.query, store.vocabulary)


class Publisher:
    """Writes snapshots in a thread, one at a time.

    Args:
      run: the run folder.
      keep: number of snapshots to keep.
      config_json: the run's config.
      fields: JSON fields for the manifests.
      mesh: devices that hold the params.
      probes: queries [B, Q] with which the builder measures the recall of an index.
      still_allowed: see `commit.publish`.
    """

    def __init__(
        self,
        run: RunDir,
        keep: int,
        config_json: str,
        fields: dict[str, Any],
        mesh: Mesh,
        probes: Rows,
        still_allowed: Callable[[], None] = lambda: None,
    ):
        self._run, self._keep, self._config, self._fields = run, keep, config_json, fields
        self._mesh, self._probes, self._still_allowed = mesh, probes, still_allowed
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def publish(self, step: int, params: Parameters) -> None:
        """Copies the params to the host and starts to write the snapshot of `step`.

        All processes call it; process 0 writes.

        Raises:
          RealmError: the previous snapshot could not be written.
        """
        self.wait()
        copied = gather_to_host(self._mesh, params)
        if not hosts.is_leader():
            return
        fields = {**self._fields, "time": time.time()}
        self._thread = threading.Thread(
            target=self._write, args=(step, copied, fields), name="publisher", daemon=True
        )
        self._thread.start()

    def _write(self, step: int, params: Parameters, fields: dict[str, Any]) -> None:
        try:
            allowed = self._still_allowed
            publish_snapshot(self._run, step, params, self._config, fields, allowed, self._probes)
            retain(self._run, SNAPSHOTS, self._keep)
        except Exception as error:  # noqa: BLE001 - `wait` raises it again
            self._failure = error

    def wait(self) -> None:
        """Waits until the last snapshot is durable; raises a RealmError if it was not written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        self._raise(failure)

    def check(self) -> None:
        """Raises a RealmError if the last snapshot could not be written; does not wait for it."""
        self._raise(self._failure)

    def _raise(self, failure: Exception | None) -> None:
        if failure is not None:
            raise RealmError(
                "the snapshot could not be published",
                where=self._run.snapshots,
                found=f"{type(failure).__name__}: {failure}",
                fix="free disk space or repair the folder, then run the same command to resume",
            ) from failure


class NoPublisher:
    """Publishes nothing, for stages without an index builder."""

    def publish(self, step: int, params: Parameters) -> None:
        """Does nothing."""

    def wait(self) -> None:
        """Does nothing."""
