"""The config of a refresh: that of its snapshot, with some settings of the config of the run."""

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.run_config import NO_PATHS, Paths, newest_config, run_config
from realm_jax.artifacts.snapshots import Snapshot
from realm_jax.index_builder.work_order import WorkOrder
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir


def refresh_config(run_dir: RunDir, snapshot: Snapshot, paths: Paths = NO_PATHS) -> ConfigDict:
    """The config of a snapshot, with inputs, search settings and recall floor of the run's config.

    If an index is below the recall floor, the run can therefore be started again with other search
    settings. `retrieval` is taken from the run as well: the builder does not use it, but some of
    its values are valid only with some searchers. `paths`: see `run_config`.
    """
    where = f"snapshot of step {snapshot.step}"
    config, current = (
        run_config(run_dir, snapshot.config_json, where, paths),
        newest_config(run_dir),
    )
    if current is None:
        return config
    with config.unlocked():
        config.search.update(current.search)
        config.retrieval.update(current.retrieval)
        config.builder.recall_floor = current.builder.recall_floor
    return config_lib.check(config)


class SettingsCheck:
    """Compares the settings of the run with those of a work order.

    They differ if the run was started again with others after worker 0 had read its config.

    Args:
      run_dir: the run folder.
      snapshot: of the order.
      order: the work order.
      paths: see `run_config`.
    """

    def __init__(self, run_dir: RunDir, snapshot: Snapshot, order: WorkOrder, paths: Paths):
        self._run_dir, self._snapshot, self._order, self._paths = run_dir, snapshot, order, paths
        self._content: bytes | None = b""
        self._same = False

    def same(self) -> bool:
        """Whether they are the same; reads the config, and parses it only if it has changed."""
        content = files.read_bytes(self._run_dir.config)
        if content != self._content:
            config = refresh_config(self._run_dir, self._snapshot, self._paths)
            self._content, self._same = content, self._order.is_of(config)
        return self._same
