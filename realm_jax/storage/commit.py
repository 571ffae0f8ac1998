"""The one durable door: a step folder is published when its manifest, written last, is in it.

Order of a publication, none of which needs an atomic rename:

1. data files go into the step folder;
2. MANIFEST.json, with size and SHA-256 of each: from here on the step exists;
3. LATEST.json beside the step folders names it: from here on followers see it at once.

Killed before 2, the folder is unfinished: readers ignore it, and its writer sweeps it, before it
writes that step again or by retention (`leases.retain`). Killed before 3, the next publication
moves the pointer. Each parent folder has one writer.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

from etils import epath

from realm_jax.errors import DamageError, MismatchError, RealmError
from realm_jax.storage import files
from realm_jax.storage.failpoints import reach
from realm_jax.storage.layout import MANIFEST, POINTER, step_name, step_of

FORMAT = 1
NO_FILE = "no such file"  # what `verify` expects where there is a file that was not published


class NotPublishedError(RealmError):
    """A folder without a manifest: never finished, or taken back by its writer's retention."""


def publish(
    parent: epath.Path, step: int, write: Callable[[epath.Path], None], manifest: dict[str, Any]
) -> bool:
    """Publishes one step: sweep, `write(folder)`, commit, pointer.

    A step that is already published stands as it is: a resumed job publishes it again and changes
    nothing but a pointer that it had no time to move.

    Args:
      parent: for example `RunDir.snapshots`.
      step: the trainer step that names the folder.
      write: writes all data files into the empty folder it is given.
      manifest: fields to record; `kind` is required.

    Returns:
      False if the step was already there.
    """
    folder = parent / step_name(step)
    newest = latest(parent)
    new = not is_published(folder)
    if new:
        files.delete_tree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        reach(f"{manifest['kind']}.staged")
        commit(folder, {"step": step, **manifest})
        reach(f"{manifest['kind']}.committed")
    if newest is None or newest <= step:
        write_pointer(parent, step)
        reach(f"{manifest['kind']}.published")
    return new


def commit(folder: epath.Path, manifest: dict[str, Any]) -> None:
    """Measures every file under `folder`, makes it durable, then writes the manifest.

    Args:
      folder: holds all its data files and nothing else.
      manifest: fields to record; `kind` is required.
    """
    table = {name: files.digest(folder / name, sync=True) for name in files.list_files(folder)}
    for inner in sorted({(folder / name).parent for name in table}):
        files.sync_folder(inner)
    content = {"format": FORMAT, "kind": manifest["kind"], **manifest, "files": table}
    files.write_sealed(folder / MANIFEST, content)


def read_manifest(folder: epath.Path) -> dict[str, Any] | None:
    """The manifest of a step folder; None if there is none: not published.

    Raises:
      DamageError: a manifest that is torn or altered, or lacks what every manifest has.
      MismatchError: a manifest of another format version.
    """
    manifest = files.read_sealed(folder / MANIFEST, kind=str, step=int, files=dict)
    if manifest is not None and manifest.get("format") != FORMAT:
        raise MismatchError(
            "manifest of another format version",
            where=folder / MANIFEST,
            expected=FORMAT,
            found=manifest.get("format"),
            fix="read this run with the version that wrote it",
        )
    if manifest is not None:
        _assert_measures(manifest, folder / MANIFEST)
    return manifest


def _assert_measures(manifest: dict[str, Any], where: epath.Path) -> None:
    wrong = [name for name, found in manifest["files"].items() if not _is_measure(found)]
    if wrong:
        raise DamageError(
            "manifest is not one of ours",
            where=where,
            expected="bytes and sha256 of each file",
            found=f"something else at {wrong[0]}",
        )


def _is_measure(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("bytes"), int) and "sha256" in found


def is_published(folder: epath.Path) -> bool:
    """Whether a sound manifest is there; data files are not looked at."""
    try:
        return read_manifest(folder) is not None
    except DamageError:
        return False


def verify(folder: epath.Path) -> list[dict[str, Any]]:
    """Every file that is not as the manifest says: [{"file", "expected", "found"}], best empty.

    Finds files that are gone, emptied, cut, altered, replaced, or that nobody published.
    """
    try:
        manifest = read_manifest(folder)
    except (DamageError, MismatchError) as error:
        return [{"file": MANIFEST, "expected": error.expected, "found": error.found}]
    if manifest is None:
        return [{"file": MANIFEST, "expected": "a manifest, written last", "found": "none"}]
    if step_of(folder.name) not in (None, manifest["step"]):
        expected, of_other = f"of step {step_of(folder.name)}", f"that of step {manifest['step']}"
        return [{"file": MANIFEST, "expected": expected, "found": of_other}]
    table = manifest["files"]
    present = set(files.list_files(folder)) - {MANIFEST}
    problems: list[dict[str, Any]] = [
        {"file": name, "expected": NO_FILE, "found": "a file that was not published"}
        for name in sorted(present - table.keys())
    ]
    for name, expected in table.items():
        found = _measure(folder / name, expected) if name in present else NO_FILE
        if found != expected:
            problems.append({"file": name, "expected": expected, "found": found})
    return problems


def _measure(path: epath.Path, expected: dict[str, Any]) -> dict[str, Any] | str:
    """The digest of a file, or its size alone where that already differs."""
    try:
        size = path.stat().length
        return files.digest(path) if size == expected["bytes"] else {"bytes": size}
    except FileNotFoundError:
        return NO_FILE


def verified(folder: epath.Path, kind: str) -> dict[str, Any]:
    """The manifest of a folder whose every byte was checked.

    Raises:
      NotPublishedError: no manifest, or it was taken away while we read.
      DamageError: names the first file that is not as published.
      MismatchError: a folder of another kind.
    """
    manifest = read_manifest(folder)
    problems = [] if manifest is None else verify(folder)
    if manifest is None or (problems and not (folder / MANIFEST).exists()):
        raise NotPublishedError(
            "nothing is published here",
            where=folder,
            expected=MANIFEST,
            found="none: unfinished, or deleted by its writer's retention",
            fix="take the newest step, and hold a lease while reading",
        )
    if problems:
        first = problems[0]
        raise DamageError(
            "published file is damaged",
            where=folder / first["file"],
            expected=first["expected"],
            found=first["found"],
            fix=f"stop both jobs, and repair that step ({len(problems)} files bad in all): "
            f"realm check --repair {folder}",
        )
    if manifest["kind"] != kind or manifest["step"] != step_of(folder.name):
        raise MismatchError(
            "manifest belongs to another folder",
            where=folder,
            expected=f"{kind} of step {step_of(folder.name)}",
            found=f"{manifest['kind']} of step {manifest['step']}",
        )
    return manifest


def steps(parent: epath.Path) -> list[int]:
    """Published steps, ascending."""
    named = [(step_of(name), name) for name in files.list_names(parent)]
    return sorted(s for s, name in named if s is not None and is_published(parent / name))


def write_pointer(parent: epath.Path, step: int) -> None:
    """Names `step` as the newest published one."""
    files.write_sealed(parent / POINTER, {"step": step})


def read_pointer(parent: epath.Path) -> dict[str, Any] | None:
    """The pointer, `{"step": ...}`; None if there is none. DamageError if it is not one of ours."""
    return files.read_sealed(parent / POINTER, step=int)


def point_to(parent: epath.Path, step: int) -> None:
    """Moves the pointer to a published step, unless a newer one is there already."""
    newest = latest(parent)
    if newest is None or newest <= step:
        write_pointer(parent, step)


def latest(parent: epath.Path) -> int | None:
    """The newest published step; None if there is none.

    The pointer only saves listing the folder: where it is torn, missing or names a folder without a
    sound manifest, the folder is listed.
    """
    try:
        pointer = read_pointer(parent)
        problem = "missing"
    except DamageError:
        pointer, problem = None, "torn"
    if pointer is not None:
        if is_published(parent / step_name(pointer["step"])):
            return pointer["step"]
        problem = "stale"
    found = steps(parent)
    if found:
        _log_once(f"{parent / POINTER} is {problem}; listed the folder instead")
    return found[-1] if found else None


@functools.cache
def _log_once(message: str) -> None:
    logging.getLogger(__name__).warning(message)
