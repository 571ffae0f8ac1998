"""Waits for the index builder to publish an index; all processes wait together."""

import logging
import shlex
import time
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from realm_jax.errors import RealmError
from realm_jax.monitoring.format import short
from realm_jax.parallel import hosts
from realm_jax.storage.heartbeat import last_beat, last_beats
from realm_jax.storage.layout import RunDir

log = logging.getLogger(__name__)

LOG_AFTER_SECONDS = 2.0  # a shorter wait is not logged


class WaitInterrupted(RealmError):
    """A process was stopped while all were waiting for an index."""


class IndexWait:
    """Polls for an index, with one agreement of all processes per poll.

    The number of polls limits the wait, not a clock: all processes reach the limit together, and
    one that was suspended does not. Polls count from the last progress of the index builder, as
    process 0 sees it: a large corpus may take hours. While a trainer waits it makes no snapshots,
    so the work of the builder, and the wait, end.

    Args:
      run: the run folder.
      refresh: `config.refresh`; `wait_seconds` limits each wait without progress of the builder.
      poll_seconds: time between two polls.
      stopped: whether this process must stop.
      pause: sleeps for a number of seconds, or until the wait must end.
      check: raises the error that keeps the index from being built, if there is one.
    """

    def __init__(
        self,
        run: RunDir,
        refresh: ConfigDict,
        poll_seconds: float,
        stopped: Callable[[], bool],
        pause: Callable[[float], Any],
        check: Callable[[], None],
    ):
        self._run, self._limit, self._poll = run, refresh.wait_seconds, poll_seconds
        self._stopped, self._pause, self._check = stopped, pause, check

    def until(
        self,
        step: int,
        wanted: str,
        look: Callable[[], Any],
        choose: Callable[[list[Any]], Any],
    ) -> Any:
        """Polls until `choose` returns a value, and returns that value.

        Args:
          step: the training step that needs the index.
          wanted: describes the index, for logs and errors.
          look: what this process finds in the run folder; goes through JSON.
          choose: from the findings of all processes to the result, or None to keep waiting.

        Raises:
          WaitInterrupted: a process was stopped.
          RealmError: no such index was published, and the builder made no progress, for
            `refresh.wait_seconds`.
        """
        attempt, last, logged = 0, 0, False  # last: attempt with progress
        seen: set[tuple[int, int]] = set()  # work: a builder may begin again with less done
        while True:
            work = self._work() if hosts.is_leader() else None
            answers = hosts.all_gather(
                f"index wait {attempt}", step, [look(), self._stopped(), work]
            )
            if any(stopped for _, stopped, _ in answers):
                raise WaitInterrupted(
                    "stopped while waiting for an index", where=self._run.published_index
                )
            found = choose([finding for finding, _, _ in answers])
            if found is not None:
                return found
            snapshot, done = answers[0][2]
            if (snapshot, done) not in seen:
                seen.add((snapshot, done))
                last = attempt
            if (attempt - last) * self._poll > self._limit:
                raise self._timeout(wanted)
            if not logged and attempt * self._poll > LOG_AFTER_SECONDS:
                start = start_command(self._run)
                log.info("step %d waits for an index %s, built by `%s`", step, wanted, start)
                logged = True
            self._check()
            self._pause(self._poll)
            attempt += 1

    def _work(self) -> list[int]:
        """Newest snapshot that builders work on, and passages that all of them have done for it."""
        beats = [one for one in last_beats(self._run, "index_builder") if "done" in one]
        newest = max((one.get("snapshot_step", -1) for one in beats), default=-1)
        return [newest, sum(one["done"] for one in beats if one.get("snapshot_step") == newest)]

    def _timeout(self, wanted: str) -> RealmError:
        return RealmError(
            "no index was published in time",
            where=self._run.published_index,
            expected=f"an index {wanted}, or progress of its builder, within {self._limit:.0f} s "
            "(config.refresh.wait_seconds)",
            found=f"none; index builder: {builder_state(self._run)}",
            fix=f"start the index builder: {start_command(self._run)} (of several builders, those "
            "that ended, each with its --worker=i/n; worker 0 logs them); if it runs and embeds "
            "no passages at this time, set a larger --config.refresh.wait_seconds",
        )


def builder_state(run: RunDir) -> str:
    """The last heartbeat of the index builder and its age, for logs and errors."""
    beat = last_beat(run, "index_builder")
    if beat is None:
        return "no heartbeat received"
    fields = ", ".join(f"{name} {short(value)}" for name, value in beat.items() if name != "time")
    return f"last heartbeat {max(time.time() - beat['time'], 0.0):.0f} s ago: {fields}"


def start_command(run: RunDir) -> str:
    """The command that starts the index builder of this run."""
    return f"realm index --workdir={shlex.quote(str(run.workdir))}"
