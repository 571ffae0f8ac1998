"""Parameters as an Orbax checkpoint, written and read without a model."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from realm_jax.errors import DamageError, InputError
from realm_jax.storage import files
from realm_jax.storage.files import external_write
from realm_jax.storage.staging import local_to_read, local_to_write, writes_in_place

_OS_ERROR = re.compile(r"os_error_code='(\d+)'")  # in a message of TensorStore


def save_parameters(folder: epath.Path, tree: dict[str, Any]) -> None:
    """Writes a nested dict of arrays into a new folder; returns when all are written.

    Only the calling process writes, so one process of several may call it.

    Args:
      folder: does not exist yet.
      tree: arrays of any dtype, including bfloat16; each must be fully addressable.
    """
    arrays = jax.tree.map(np.asarray, jax.device_get(tree))
    with external_write(folder), local_to_write(folder) as local, _open(local) as checkpointer:
        checkpointer.save(_absolute(local), ocp.args.PyTreeSave(arrays))


def require_sharded_writes(folder: epath.Path) -> None:
    """Checks that `save_sharded` can write to a folder, which need not exist.

    Raises:
      InputError: several processes would write, on a file system without `flock`.
    """
    if jax.process_count() > 1 and files.is_local(folder) and not writes_in_place(folder):
        raise InputError(
            "several processes cannot write checkpoints to this file system",
            where=folder,
            expected="a file system that supports flock, or an object store",
            found="a file system without flock",
            fix="choose a --workdir on another file system, or train with one process",
        )


def save_sharded(folder: epath.Path, tree: dict[str, Any]) -> None:
    """Like `save_parameters`, for jax arrays sharded over several processes.

    Every process calls it and writes its own shards.

    Args:
      folder: on a file system that all processes share; does not exist yet. See
        `require_sharded_writes`.
      tree: arrays on the devices of all processes.
    """
    if jax.process_count() == 1:
        save_parameters(folder, tree)
        return
    everyone = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    with external_write(folder), _os_errors(folder), everyone as checkpointer:
        checkpointer.save(_absolute(folder), ocp.args.PyTreeSave(tree))


def load_parameters(folder: epath.Path) -> dict[str, Any]:
    """Reads the nested dict that `save_parameters` wrote, as numpy arrays."""
    with local_to_read(folder) as local, _open(local) as checkpointer:
        path = _absolute(local)
        saved = checkpointer.metadata(path).item_metadata
        if saved is None:
            raise DamageError(
                "no parameters in this folder", where=folder, expected="an Orbax folder"
            )
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved.tree)
        return checkpointer.restore(path, ocp.args.PyTreeRestore(restore_args=as_numpy))


def hash_of(tree: dict[str, Any]) -> str:
    """SHA-256 of the names, dtypes, shapes and values of a nested dict of arrays on the host."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        found.update(array.view(np.uint8).data if array.size else b"")
    return found.hexdigest()


def _absolute(folder: epath.Path) -> epath.Path:
    """The absolute path: Orbax refuses relative ones."""
    return folder.resolve()


@contextlib.contextmanager
def _os_errors(folder: epath.Path) -> Iterator[None]:
    """Raises the OSError that TensorStore reports as a ValueError, such as a full disk."""
    try:
        yield
    except ValueError as error:
        if (found := _OS_ERROR.search(str(error))) is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(folder)) from error


@contextlib.contextmanager
def _open(folder: epath.Path) -> Iterator[ocp.Checkpointer]:
    """A checkpointer for only this process: it does not wait for other processes."""
    here = jax.process_index()
    this_process = ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"alone{here}"
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=this_process)
    alone = ocp.Checkpointer(handler, multiprocessing_options=this_process)
    with _os_errors(folder), alone as checkpointer:
        yield checkpointer
