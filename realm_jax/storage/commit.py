"""Durable folders: a folder is published once its manifest, written last, is in it.

`publish` writes one step of a parent folder in this order; none of it needs an atomic rename:

1. WRITER.json names the process that writes the step folder; the data files follow;
2. MANIFEST.json records the size and SHA-256 of each file: from now on the step exists;
3. LATEST.json in the parent names the step: from now on followers find it without listing.

On an object store, and on a file system without `flock`, the data files are first written and
measured in a local temporary folder.

If the writer is killed before 2, the folder is unfinished: readers ignore it, and its writer
deletes it before it writes that step again, or in `leases.retain`. If the writer is killed before
3, the next publication moves the pointer. Each parent folder has one writer.

A writer that was suspended may find that another one has taken over. Just before 2 it therefore
checks that the folder is still its own, that it holds exactly the files that it wrote, and that no
newer step was published; before 3 it reads the pointer again, which never moves back.

A folder that is not a step (a corpus) has the same manifest without `step`. `storage.integrity`
compares the files of a folder with its manifest.
"""

import functools
import logging
import posixpath
import uuid
from collections.abc import Callable, Collection
from typing import Any

from etils import epath

from realm_jax.errors import DamageError, MismatchError, RealmError
from realm_jax.storage import files, sealed
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import JOURNAL, MANIFEST, POINTER, WRITER, step_name, step_of
from realm_jax.storage.sealed import FieldType
from realm_jax.storage.staging import local_to_write

FORMAT = 1

log = logging.getLogger(__name__)


class NotPublishedError(RealmError):
    """The folder has no manifest: it was never finished, or its writer deleted it."""


class OvertakenError(RealmError):
    """Another process has published or deleted what this one was writing."""


def publish(
    parent: epath.Path,
    step: int,
    write: Callable[[epath.Path], None],
    manifest: dict[str, Any],
    still_allowed: Callable[[], None] = lambda: None,
) -> bool:
    """Publishes one step: deletes unfinished files, calls `write(folder)`, commits, moves LATEST.

    A step that is already published is not changed, so a resumed job may publish it again. Only the
    pointer is moved, if the first attempt was killed before it moved it.

    Args:
      parent: for example `RunDir.snapshots`.
      step: the trainer step that names the folder.
      write: writes all data files into the empty local folder that is its argument: the step
        folder, or a temporary one, which is copied to it afterwards (`staging.local_to_write`).
      manifest: fields to record; `kind` is required.
      still_allowed: raises an error if this process may no longer publish; called before each
        upload, before the manifest is written and before the pointer moves.

    Returns:
      False if the step was already published.

    Raises:
      OvertakenError: another process wrote or deleted this step, or published a newer one, since
        this publication began. The step is not published by this process.
    """
    folder, kind = parent / step_name(step), manifest["kind"]
    new = not is_published(folder)
    if new:
        newest = _latest(parent)[0]
        publish_folder(
            folder, write, manifest, still_allowed, lambda: _assert_newest(folder, newest), step
        )
        failpoint(f"{kind}.committed")
    still_allowed()
    if advance_pointer(parent, step):
        failpoint(f"{kind}.published")
    return new


def publish_folder(
    folder: epath.Path,
    write: Callable[[epath.Path], None],
    manifest: dict[str, Any],
    still_allowed: Callable[[], None] = lambda: None,
    not_overtaken: Callable[[], None] = lambda: None,
    step: int | None = None,
) -> None:
    """Writes one folder and its manifest; deletes unfinished files in it first.

    Args:
      folder: to publish; not published yet.
      write: see `publish`.
      manifest: fields to record; `kind` is required, `write` may add others.
      still_allowed: see `publish`.
      not_overtaken: raises an OvertakenError; called just before the manifest is written.
      step: of a folder that is a step.

    Raises:
      OvertakenError: another process wrote or deleted the folder since this call began.
    """
    files.delete_tree(folder)
    writer = _claim(folder)
    with local_to_write(folder, still_allowed) as place:
        place.mkdir(parents=True, exist_ok=True)
        write(place)
        failpoint(f"{manifest['kind']}.staged")
        measured = measure(place, sync=place == folder)
    still_allowed()
    _assert_own(folder, writer)
    not_overtaken()
    write_manifest(folder, manifest if step is None else {"step": step, **manifest}, measured)
    files.delete_file(folder / WRITER)


def _claim(folder: epath.Path) -> str:
    """Writes WRITER.json; returns the name of this writer in it."""
    writer = uuid.uuid4().hex
    sealed.write(folder / WRITER, {"writer": writer})
    return writer


def _assert_own(folder: epath.Path, writer: str) -> None:
    """Raises an OvertakenError unless `writer` is still the writer of `folder`."""
    try:
        found = sealed.read(folder / WRITER, writer=str)
    except DamageError:
        found = None
    if found is None or found["writer"] != writer:
        raise _overtaken(folder, WRITER, "as this process wrote it", "changed or deleted")


def _assert_newest(folder: epath.Path, newest: int | None) -> None:
    """Raises an OvertakenError if a newer step than `folder` was published meanwhile.

    `newest` is the newest step that was published when the publication began.
    """
    now, step = _latest(folder.parent)[0], step_of(folder.name)
    assert step is not None
    if now != newest and now is not None and now > step:
        raise _overtaken(folder, POINTER, f"no step newer than {step}", f"step {now}")


def _overtaken(folder: epath.Path, name: str, expected: object, found: object) -> OvertakenError:
    return OvertakenError(
        "another process has changed the folder that this one was writing; it is not published",
        where=folder / name,
        expected=expected,
        found=found,
        fix="let the other process work; or stop it, and run the same command again",
    )


def measure(folder: epath.Path, *, sync: bool = True) -> dict[str, dict[str, Any]]:
    """Returns name -> {"bytes", "sha256"} of every data file; `sync` makes them durable first.

    The files of a finished folder inside are durable already.
    """
    names = data_files(folder)
    durable = {posixpath.dirname(name) for name in names if posixpath.basename(name) == MANIFEST}
    new = {name for name in names if sync and posixpath.dirname(name) not in durable}
    measured = {name: files.digest(folder / name, sync=name in new) for name in names}
    for inner in sorted({(folder / name).parent for name in (names if sync else ())}):
        files.sync_folder(inner)
    return measured


def write_manifest(
    folder: epath.Path, fields: dict[str, Any], measured: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Publishes a folder whose files `measure` returned; returns the manifest.

    Raises:
      OvertakenError: the folder now holds other files or files of other sizes, or a manifest.
    """
    sizes = {name: one["bytes"] for name, one in measured.items()}
    found = files.sizes(folder)
    present = {name: found[name] for name in found if name not in (WRITER, JOURNAL)}
    for name in sorted(sizes.keys() | present.keys()):
        if sizes.get(name) != present.get(name):
            expected, other = (_size(table.get(name)) for table in (sizes, present))
            raise _overtaken(folder, name, expected, other)
    manifest = {"format": FORMAT, "kind": fields["kind"], **fields, "files": measured}
    sealed.write(folder / MANIFEST, manifest)
    return manifest


def list_fewer_files(folder: epath.Path, kept: Collection[str], **fields: Any) -> None:
    """Rewrites a manifest so that it lists only the files `kept`; others can then be deleted.

    Args:
      folder: has a manifest.
      kept: names of files.
      fields: to add to the manifest.
    """
    manifest = read_manifest(folder)
    assert manifest is not None
    left = {name: one for name, one in manifest["files"].items() if name in kept}
    if left != manifest["files"]:
        sealed.write(folder / MANIFEST, {**manifest, **fields, "files": left})


def _size(size: int | None) -> str:
    return "no such file" if size is None else f"{size} bytes"


def data_files(folder: epath.Path) -> list[str]:
    """Relative names of the files under a folder, without its manifest, journal and writer."""
    return [name for name in files.list_files(folder) if name not in (MANIFEST, JOURNAL, WRITER)]


def read_manifest(folder: epath.Path, **fields: FieldType) -> dict[str, Any] | None:
    """Reads the manifest of any durable folder.

    Args:
      folder: the folder.
      fields: further required fields and their types.

    Returns:
      None if there is no manifest, so the folder is not published.

    Raises:
      DamageError: the manifest is cut short or altered, or a required field is missing or of
        another type.
      MismatchError: the manifest has another format version.
    """
    where = folder / MANIFEST
    manifest = sealed.read(where, kind=str, files=dict, **fields)
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
    sealed.write(parent / POINTER, {"step": step})


def read_pointer(parent: epath.Path) -> dict[str, Any] | None:
    """Reads LATEST.json, `{"step": ...}`; None if there is none. DamageError if it is damaged."""
    return sealed.read(parent / POINTER, step=int)


def advance_pointer(parent: epath.Path, step: int) -> bool:
    """Moves the pointer to a published step; returns False if a newer step is published."""
    newest = _latest(parent)[0]
    may_move = newest is None or newest <= step
    if may_move:
        write_pointer(parent, step)
    return may_move


def latest(parent: epath.Path) -> int | None:
    """The newest published step; None if there is none.

    Usually the pointer names it. If the pointer is missing or damaged, or names a folder without a
    valid manifest, the folder is listed instead.
    """
    newest, problem = _latest(parent)
    if newest is not None and problem:
        _warn_once(f"{parent / POINTER} is {problem}; listed the folder instead")
    return newest


def _latest(parent: epath.Path) -> tuple[int | None, str]:
    """See `latest`; also returns what is wrong with the pointer, or an empty string."""
    try:
        pointer = read_pointer(parent)
        problem = "missing"
    except DamageError:
        pointer, problem = None, "damaged"
    if pointer is not None:
        if is_published(parent / step_name(pointer["step"])):
            return pointer["step"], ""
        problem = "outdated"
    published = steps(parent)
    if problem == "missing" and len(published) == 1:
        problem = ""  # the first publication has written its manifest, and not yet the pointer
    return max(published, default=None), problem


@functools.cache
def _warn_once(message: str) -> None:
    log.warning(message)
