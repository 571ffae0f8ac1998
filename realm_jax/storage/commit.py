"""Durable folders: a folder is published once its manifest, written last, is in it.

`publish` writes one step of a parent folder in this order; none of it needs an atomic rename:

1. the data files go into the step folder;
2. MANIFEST.json records the size and SHA-256 of each file: from now on the step exists;
3. LATEST.json in the parent names the step: from now on followers find it without listing.

If the writer is killed before 2, the folder is unfinished: readers ignore it, and its writer
deletes it before it writes that step again, or in `leases.retain`. If the writer is killed before
3, the next publication moves the pointer. Each parent folder has one writer.

A folder that is not a step (a corpus) has the same manifest without `step`. `storage.integrity`
compares the files of a folder with its manifest.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

from etils import epath

from realm_jax.errors import DamageError, MismatchError, RealmError
from realm_jax.storage import files
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import JOURNAL, MANIFEST, POINTER, step_name, step_of

FORMAT = 1

log = logging.getLogger(__name__)


class NotPublishedError(RealmError):
    """The folder has no manifest: it was never finished, or its writer deleted it."""


def publish(
    parent: epath.Path, step: int, write: Callable[[epath.Path], None], manifest: dict[str, Any]
) -> bool:
    """Publishes one step: deletes unfinished files, calls `write(folder)`, commits, moves LATEST.

    A step that is already published is not changed, so a resumed job may publish it again. Only the
    pointer is moved, if the first attempt was killed before it moved it.

    Args:
      parent: for example `RunDir.snapshots`.
      step: the trainer step that names the folder.
      write: writes all data files into the empty folder that is its argument.
      manifest: fields to record; `kind` is required.

    Returns:
      False if the step was already published.
    """
    folder = parent / step_name(step)
    newest = latest(parent)
    new = not is_published(folder)
    if new:
        files.delete_tree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        failpoint(f"{manifest['kind']}.staged")
        commit(folder, {"step": step, **manifest})
        failpoint(f"{manifest['kind']}.committed")
    if newest is None or newest <= step:
        write_pointer(parent, step)
        failpoint(f"{manifest['kind']}.published")
    return new


def commit(folder: epath.Path, manifest: dict[str, Any]) -> None:
    """Makes every file under `folder` durable, then writes the manifest.

    Args:
      folder: holds all its data files and nothing else.
      manifest: fields to record; `kind` is required.
    """
    write_manifest(folder, manifest, sync_and_measure(folder))


def sync_and_measure(folder: epath.Path) -> dict[str, dict[str, Any]]:
    """Makes every data file durable; returns name -> {"bytes", "sha256"}."""
    names = data_files(folder)
    measured = {name: files.digest(folder / name, sync=True) for name in names}
    for inner in sorted({(folder / name).parent for name in names}):
        files.sync_folder(inner)
    return measured


def write_manifest(
    folder: epath.Path, fields: dict[str, Any], measured: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Publishes a folder whose files `sync_and_measure` returned; returns the manifest."""
    manifest = {"format": FORMAT, "kind": fields["kind"], **fields, "files": measured}
    files.write_sealed(folder / MANIFEST, manifest)
    return manifest


def data_files(folder: epath.Path) -> list[str]:
    """Relative names of the files under a folder, without its manifest and its journal."""
    return [name for name in files.list_files(folder) if name not in (MANIFEST, JOURNAL)]


def read_manifest(folder: epath.Path) -> dict[str, Any] | None:
    """Reads the manifest of any durable folder.

    Returns:
      None if there is no manifest, so the folder is not published.

    Raises:
      DamageError: the manifest is cut short or altered, or a required field is missing.
      MismatchError: the manifest has another format version.
    """
    where = folder / MANIFEST
    manifest = files.read_sealed(where, kind=str, files=dict)
    if manifest is None:
        return None
    if manifest.get("format") != FORMAT:
        raise MismatchError(
            "manifest has another format version",
            where=where,
            expected=FORMAT,
            found=manifest.get("format"),
            fix="read this folder with the version that wrote it",
        )
    if not isinstance(manifest.get("step", 0), int):
        raise _malformed(where, "an integer step", repr(manifest["step"]))
    for name, measured in manifest["files"].items():
        if not _is_measured(measured):
            raise _malformed(where, "bytes and sha256 of each file", f"something else for {name}")
    return manifest


def _is_measured(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and "sha256" in entry


def _malformed(where: epath.Path, expected: str, found: str) -> DamageError:
    return DamageError("manifest is malformed", where=where, expected=expected, found=found)


def is_published(folder: epath.Path) -> bool:
    """Whether a valid manifest is there; data files are not read."""
    try:
        return read_manifest(folder) is not None
    except DamageError:
        return False


def steps(parent: epath.Path) -> list[int]:
    """Published steps, ascending."""
    named = [(step_of(name), name) for name in files.list_names(parent)]
    return sorted(s for s, name in named if s is not None and is_published(parent / name))


def write_pointer(parent: epath.Path, step: int) -> None:
    """Writes LATEST.json: `step` is the newest published one."""
    files.write_sealed(parent / POINTER, {"step": step})


def read_pointer(parent: epath.Path) -> dict[str, Any] | None:
    """Reads LATEST.json, `{"step": ...}`; None if there is none. DamageError if it is damaged."""
    return files.read_sealed(parent / POINTER, step=int)


def advance_pointer(parent: epath.Path, step: int) -> None:
    """Moves the pointer to a published step, unless it already names a newer one."""
    newest = latest(parent)
    if newest is None or newest <= step:
        write_pointer(parent, step)


def latest(parent: epath.Path) -> int | None:
    """The newest published step; None if there is none.

    Usually the pointer names it. If the pointer is missing or damaged, or names a folder without a
    valid manifest, the folder is listed instead.
    """
    try:
        pointer = read_pointer(parent)
        problem = "missing"
    except DamageError:
        pointer, problem = None, "damaged"
    if pointer is not None:
        if is_published(parent / step_name(pointer["step"])):
            return pointer["step"]
        problem = "outdated"
    found = steps(parent)
    if found:
        _warn_once(f"{parent / POINTER} is {problem}; listed the folder instead")
    return found[-1] if found else None


@functools.cache
def _warn_once(message: str) -> None:
    log.warning(message)
