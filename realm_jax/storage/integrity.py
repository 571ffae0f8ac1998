"""Integrity of durable folders: are the files of a folder those that its manifest records?

What was verified is what is loaded: `verified` downloads a folder of an object store once, verifies
the copy and yields it.
"""

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax.errors import DamageError, InputError, MismatchError
from realm_jax.storage import files, sealed
from realm_jax.storage.commit import NotPublishedError, data_files, read_manifest
from realm_jax.storage.layout import CONFIG, GENERATIONS, MANIFEST, step_of
from realm_jax.storage.sealed import FieldType
from realm_jax.storage.staging import local_to_read

OLD_MANIFEST = "manifest.json"  # of corpora and spans, before all kinds of folders shared one name
Skip = Callable[[str], bool]  # by the name of a file in a folder
_NONE: Skip = lambda name: False  # noqa: E731
NO_FILE = "no such file"  # the `expected` of a file that is not in the manifest


def verify(folder: epath.Path) -> list[dict[str, Any]]:
    """Compares every byte of a durable folder of any kind with its manifest.

    Published folders inside a folder without `step` are verified too.

    Returns:
      `[{"file", "expected", "found"}]` for each file that is missing, altered or not in the
      manifest; empty if the folder is undamaged.
    """
    try:
        manifest = read_manifest(folder)
    except (DamageError, MismatchError) as error:
        return [{"file": MANIFEST, "expected": error.expected, "found": error.found}]
    if manifest is None:
        return [{"file": MANIFEST, "expected": "a manifest, written last", "found": "none"}]
    return _problems(folder, manifest, folder)


def _problems(
    folder: epath.Path, manifest: dict[str, Any], copy: epath.Path, skip: Skip = _NONE
) -> list[dict[str, Any]]:
    """Problems of the files in `copy`, a copy of `folder` or `folder` itself, but for `skip`."""
    step, named = manifest.get("step"), step_of(folder.name)
    if None not in (step, named) and step != named:
        of_other = {"expected": f"the manifest of step {named}", "found": f"that of step {step}"}
        return [{"file": MANIFEST, **of_other}]
    table = {name: entry for name, entry in manifest["files"].items() if not skip(name)}
    present = {name for name in data_files(copy) if not skip(name)}
    present -= _unfinished_generations(present) if step is None else set()
    problems: list[dict[str, Any]] = []
    for inner in _published_inside(present - table.keys()) if step is None else ():
        present = {name for name in present if not name.startswith(f"{inner}/")}
        found_inside = verify(copy / inner)
        problems += [{**one, "file": f"{inner}/{one['file']}"} for one in found_inside]
    problems += [
        {"file": name, "expected": NO_FILE, "found": "a file that is not in the manifest"}
        for name in sorted(present - table.keys())
    ]
    for name, expected in table.items():
        found = _measure(copy / name, expected) if name in present else NO_FILE
        if found != expected:
            problems.append({"file": name, "expected": expected, "found": found})
    return problems


def _unfinished_generations(names: set[str]) -> set[str]:
    """Files of the generations of a corpus that no finished generation holds.

    These are the pointer, locks, staged files, and folders of steps without a manifest.
    """
    inside = {name for name in names if name.startswith(f"{GENERATIONS}/")}
    finished = {
        f"{GENERATIONS}/{inner}/"
        for inner in {name.split("/")[1] for name in inside}
        if step_of(inner) is not None and f"{GENERATIONS}/{inner}/{MANIFEST}" in inside
    }
    return {name for name in inside if not name.startswith(tuple(finished))}


def _published_inside(names: set[str]) -> list[str]:
    """Subfolders with a manifest of their own, not those inside another such subfolder."""
    inner = sorted(
        name.removesuffix(f"/{MANIFEST}") for name in names if name.endswith(f"/{MANIFEST}")
    )
    return [one for one in inner if not any(one.startswith(f"{outer}/") for outer in inner)]


def _measure(path: epath.Path, expected: dict[str, Any]) -> dict[str, Any] | str:
    """The digest of a file; only its size if the size already differs."""
    try:
        size = _size(path)
        return files.digest(path) if size == expected["bytes"] else {"bytes": size}
    except FileNotFoundError:
        return NO_FILE


def _size(path: epath.Path) -> int:
    """Bytes of a file; `epath` would also look up the name of its owner, who may have none."""
    return int(Path(path).stat().st_size if files.is_local(path) else path.stat().length)


def read_verified(folder: epath.Path, kind: str, **fields: FieldType) -> dict[str, Any]:
    """The manifest of a step folder; see `verified`."""
    with verified(folder, kind, _NONE, **fields) as (_, manifest):
        return manifest


@contextlib.contextmanager
def verified(
    folder: epath.Path, kind: str, skip: Skip = _NONE, **fields: FieldType
) -> Iterator[tuple[epath.Path, dict[str, Any]]]:
    """Verifies every byte of a step folder.

    Args:
      folder: the folder.
      kind: that it must have.
      skip: says of the name of a file whether it is neither verified nor copied.
      fields: required fields of the manifest of this kind, and their types.

    Yields:
      Where to load its files from during the block, and its manifest. On an object store a local
      copy, which needs as much space for temporary files (TMPDIR); memory-mapped files of it stay
      readable after the block.

    Raises:
      NotPublishedError: there is no manifest, or it was deleted during the verification.
      DamageError: a file is damaged, and the error names the first one; or a field of the manifest
        is missing or of another type.
      MismatchError: the folder is of another kind.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise _not_published(folder)
    with local_to_read(folder, skip) as copy:
        problems = _problems(folder, manifest, copy, skip)
        if problems and not (folder / MANIFEST).exists():
            raise _not_published(folder)
        if problems:
            raise _damaged(folder, problems)
        _require_kind(folder, manifest, kind)
        sealed.require_fields(manifest, folder / MANIFEST, fields)
        yield copy, manifest


def _require_kind(folder: epath.Path, manifest: dict[str, Any], kind: str) -> None:
    if manifest["kind"] != kind or manifest.get("step") != step_of(folder.name):
        raise MismatchError(
            "manifest belongs to another folder",
            where=folder,
            expected=f"{kind} of step {step_of(folder.name)}",
            found=f"{manifest['kind']} of step {manifest.get('step')}",
        )


def _not_published(folder: epath.Path) -> NotPublishedError:
    return NotPublishedError(
        "nothing is published in this folder",
        where=folder,
        expected=MANIFEST,
        found="none: unfinished, or deleted by the retention of its writer",
        fix="use the newest step, and hold a lease while reading",
    )


def _damaged(folder: epath.Path, problems: list[dict[str, Any]]) -> DamageError:
    first = problems[0]
    return DamageError(
        "published file is damaged",
        where=folder / first["file"],
        expected=first["expected"],
        found=first["found"],
        fix=f"stop both jobs, then delete what is damaged ({len(problems)} files): "
        f"realm check --repair {shlex.quote(str(_repaired(folder)))}",
    )


def _repaired(folder: epath.Path) -> epath.Path:
    """What `realm check --repair` takes: a step, or the run that contains the folder."""
    runs = (parent for parent in folder.parents if (parent / CONFIG).exists())
    return folder if step_of(folder.name) is not None else next(runs, folder)


def read_sized(folder: str | Path, kind: str, rebuild: str, **fields: FieldType) -> dict[str, Any]:
    """Reads the manifest of a folder without `step`, and compares only the sizes of its files.

    Args:
      folder: named by the user.
      kind: that it must have.
      rebuild: the command that builds such a folder, for error messages.
      fields: required fields of the manifest beside `content_hash`, and their types.

    Raises:
      InputError: there is no such folder, it is unfinished, or it is of another kind.
      DamageError: the manifest or a file is damaged; the error names it.
    """
    path = epath.Path(folder)
    manifest = read_manifest(path)
    if manifest is None:
        raise _not_finished(Path(folder), kind, rebuild)
    if manifest["kind"] != kind:
        raise InputError(
            f"no {kind} in this folder", where=path, expected=kind, found=manifest["kind"]
        )
    sealed.require_fields(manifest, path / MANIFEST, {"content_hash": str, **fields})
    for name, expected in manifest["files"].items():
        file = path / name
        found = f"{_size(file)} bytes" if file.is_file() else NO_FILE
        if found != f"{expected['bytes']} bytes":
            raise DamageError(
                f"{kind} file is damaged",
                where=file,
                expected=f"{expected['bytes']} bytes",
                found=found,
                fix=f"copy the folder again, or delete it and rebuild it: {rebuild}",
            )
    return manifest


def _not_finished(folder: Path, kind: str, rebuild: str) -> InputError:
    fix = None
    if (folder / OLD_MANIFEST).exists():
        found = f"{OLD_MANIFEST}: a folder written by an earlier version of this package"
        fix = f"delete it and build it again, the content hash stays the same: {rebuild}"
    elif folder.is_dir():
        found = "a folder without a manifest (unfinished)"
    else:
        found = "no folder"
        if not folder.is_absolute():
            fix = (
                f"relative paths start at {Path.cwd()}: run the command in the directory in which "
                "the run was started, or give the absolute path"
            )
    return InputError(
        f"no {kind} in this folder",
        where=folder,
        expected=f"a folder with {MANIFEST}",
        found=found,
        fix=fix,
    )
