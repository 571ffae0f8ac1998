"""Snapshots: parameters, config and probe queries, published by the trainer for the builder."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from etils import epath

from realm_jax.artifacts.params import load_parameters, save_parameters
from realm_jax.data.rows import Rows
from realm_jax.errors import MismatchError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import CONFIG, PARAMETERS, RunDir

KIND = "snapshot"
PROBES = "probes.npz"  # arrays ids, mask and segments [B, Q]


@dataclass(frozen=True)
class Snapshot:
    """A verified snapshot.

    Attributes:
      step: trainer step.
      params: nested dict of numpy arrays.
      config_json: of the run.
      manifest: all recorded fields.
      probes: queries [B, Q] of the kind that the index will be asked; None in snapshots of earlier
        versions.
    """

    step: int
    params: dict[str, Any]
    config_json: str
    manifest: dict[str, Any]
    probes: Rows | None = None

    def require_probes(self) -> Rows:
        """The probe queries.

        Raises:
          MismatchError: an earlier version wrote the snapshot, without queries.
        """
        if self.probes is None or not len(self.probes.ids):
            raise MismatchError(
                "the snapshot has no probe queries, so the recall of its index cannot be measured",
                where=f"snapshot of step {self.step}",
                expected=PROBES,
                found="none, as in snapshots of earlier versions",
                fix="continue the run with this version of the trainer, whose snapshots have them; "
                "or build this index with the version that wrote the snapshot",
            )
        return self.probes


def publish_snapshot(
    run: RunDir,
    step: int,
    params: dict[str, Any],
    config_json: str,
    fields: dict[str, Any],
    still_allowed: Callable[[], None] = lambda: None,
    probes: Rows | None = None,
) -> bool:
    """Publishes the parameters of `step`; blocks until they are durable, so call it in a thread.

    Args:
      run: the run folder.
      step: trainer step.
      params: nested dict of arrays, each fully addressable by this process.
      config_json: `config.to_json` of the run.
      fields: other manifest fields, as JSON values: config_hash, stage ...
      still_allowed: see `commit.publish`.
      probes: queries [B, Q] with which the builder measures recall; it refuses snapshots without.

    Returns:
      False if the step is already published; it is not changed.
    """

    def write(folder: epath.Path) -> None:
        save_parameters(folder / PARAMETERS, params)
        files.write_bytes(folder / CONFIG, config_json.encode())
        if probes is not None:
            content = io.BytesIO()
            np.savez(content, **probes._asdict())
            files.write_bytes(folder / PROBES, content.getvalue())

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
            probes=_read_probes(copy / PROBES),
        )


def _read_probes(path: epath.Path) -> Rows | None:
    content = files.read_bytes(path)
    if content is None:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return Rows(*(arrays[name] for name in Rows._fields))
