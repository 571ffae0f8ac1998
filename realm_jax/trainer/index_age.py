"""How old the searched index is: in steps, in seconds, and by segment."""

import logging
import time
from typing import Any

from ml_collections import ConfigDict

from realm_jax.artifacts.required import mean_snapshot_step, snapshot_steps
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_wait import builder_state, start_command

log = logging.getLogger(__name__)


class IndexAge:
    """The snapshots of the indexes that were opened, and the warning about a stale one.

    Args:
      run: the run folder.
      refresh: `config.refresh`.
    """

    def __init__(self, run: RunDir, refresh: ConfigDict):
        self._run, self._refresh = run, refresh
        self._warned_of: int | None = None  # index step that was logged as stale
        self._times: dict[int, float] = {}  # time of the snapshot, by index step
        self._means: dict[int, int | float] = {}  # mean snapshot step of its segments
        self._oldest: dict[int, int] = {}  # snapshot step of its stalest segment

    def opened(self, manifest: dict[str, Any]) -> None:
        """Remembers the snapshots of an index."""
        index_step = manifest["step"]
        snapshot_time = manifest.get("snapshot_time")  # absent in older indexes
        if snapshot_time is not None:
            self._times[index_step] = snapshot_time
        self._means[index_step] = mean_snapshot_step(manifest)
        self._oldest[index_step] = min(snapshot_steps(manifest))

    def of(self, index_step: int, step: int) -> dict[str, Any]:
        """The fields that a step logs.

        `index_step`; `staleness_steps`, the mean over the segments; `index_age_s`, the time since
        the snapshot of the index, in seconds; `staleness_most`, of the stalest segment, if the
        segments are of several snapshots.
        """
        stale = round(step - self._means.get(index_step, index_step), 1)
        fields: dict[str, Any] = {"index_step": index_step, "staleness_steps": stale}
        if index_step in self._times:
            fields["index_age_s"] = time.time() - self._times[index_step]
        oldest = self._oldest.get(index_step, index_step)
        if oldest < index_step:
            fields["staleness_most"] = step - oldest
        return fields

    def warn_if_stale(self, step: int, index_step: int) -> None:
        """Warns once per index whose stalest segment is older than `refresh.alarm_steps`."""
        oldest = self._oldest.get(index_step, index_step)
        if step - oldest <= self._refresh.alarm_steps or self._warned_of == index_step:
            return
        self._warned_of = index_step
        log.warning(
            "step %d searches the index of step %d, %s %d steps old (config.refresh."
            "alarm_steps is %d); index builder: %s; check that it runs (`%s`), or use more devices "
            "for it",
            step,
            index_step,
            "whose stalest segment is" if oldest < index_step else "which is",
            step - oldest,
            self._refresh.alarm_steps,
            builder_state(self._run),
            start_command(self._run),
        )
