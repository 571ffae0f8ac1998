"""Snapshots: parameters and config, published by the trainer for the index builder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from etils import epath

from realm_jax.artifacts.params import load_parameters, save_parameters
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import CONFIG, PARAMETERS, RunDir

KIND = "snapshot"


@dataclass(frozen=True)
class Snapshot:
    """A verified snapshot; `params` is a nested dict of numpy arrays."""

    step: int
    params: dict[str, Any]
    config_json: str
    manifest: dict[str, Any]


def publish_snapshot(
    run: RunDir,
    step: int,
    params: dict[str, Any],
    config_json: str,
    fields: dict[str, Any],
    still_allowed: Callable[[], None] = lambda: None,
) -> bool:
    """Publishes the parameters of `step`; blocks until they are durable, so call it in a thread.

    Args:
      run: the run folder.
      step: trainer step.
      params: nested dict of arrays, each fully addressable by this process.
      config_json: `config.to_json` of the run.
      fields: other manifest fields, as JSON values: config_hash, stage ...
      still_allowed: see `commit.publish`.

    Returns:
      False if the step is already published; it is not changed.
    """

    def write(folder: epath.Path) -> None:
        save_parameters(folder / PARAMETERS, params)
        files.write_bytes(folder / CONFIG, config_json.encode())

    return commit.publish(run.snapshots, step, write, {**fields, "kind": KIND}, still_allowed)


def read_snapshot(folder: epath.PathLike) -> Snapshot:
    """Reads a snapshot after it has verified every byte; raises like `integrity.verified`."""
    folder = epath.Path(folder)
    with integrity.verified(folder, KIND) as (copy, manifest):
        return Snapshot(
            step=manifest["step"],
            params=load_parameters(copy / PARAMETERS),
            config_json=(copy / CONFIG).read_text(),
            manifest=manifest,
        )
