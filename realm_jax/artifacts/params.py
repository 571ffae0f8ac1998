"""Parameters in a folder, written and read by Orbax without knowing the model."""

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from realm_jax.errors import DamageError
from realm_jax.storage.files import library_write
from realm_jax.storage.staging import local_to_read, local_to_write


def save_parameters(folder: epath.Path, tree: dict[str, Any]) -> None:
    """Writes a nested dict of arrays into a new folder; returns when it is written.

    Args:
      folder: does not exist yet.
      tree: arrays of any dtype, bfloat16 included, each readable whole by this process. Only this
        process writes, so one process of many may call it.
    """
    arrays = jax.tree.map(np.asarray, jax.device_get(tree))
    with library_write(folder), local_to_write(folder) as local, _checkpointer() as checkpointer:
        checkpointer.save(_absolute(local), ocp.args.PyTreeSave(arrays))


def save_sharded(folder: epath.Path, tree: dict[str, Any]) -> None:
    """Like `save_parameters`, of jax arrays that several processes hold: each writes its parts.

    Args:
      folder: on a file system that all processes share; does not exist yet.
      tree: arrays on the devices of all processes; every process calls this.
    """
    if jax.process_count() == 1:
        save_parameters(folder, tree)
        return
    with library_write(folder), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(_absolute(folder), ocp.args.PyTreeSave(tree))


def load_parameters(folder: epath.Path) -> dict[str, Any]:
    """The nested dict that `save_parameters` wrote, as numpy arrays, without a target to fill."""
    with local_to_read(folder) as local, _checkpointer() as checkpointer:
        path = _absolute(local)
        saved = checkpointer.metadata(path).item_metadata
        if saved is None:
            raise DamageError("no parameters here", where=folder, expected="an Orbax folder")
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved.tree)
        return checkpointer.restore(path, ocp.args.PyTreeRestore(restore_args=as_numpy))


def _absolute(folder: epath.Path) -> epath.Path:
    """Orbax refuses relative paths."""
    return folder.resolve()


def _checkpointer() -> ocp.Checkpointer:
    """Orbax for this process alone: it waits for no other."""
    here = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"alone{here}"
    )
    return ocp.Checkpointer(
        ocp.PyTreeCheckpointHandler(multiprocessing_options=alone), multiprocessing_options=alone
    )
