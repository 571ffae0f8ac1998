"""`realm check --repair`: deletes damaged steps, so that both jobs can continue.

All readers refuse a damaged step, so nothing usable is lost. Afterwards the trainer resumes from
the previous checkpoint, and the builder builds the index again from its snapshot. If a step only
has files that are not in its manifest, those files are deleted and the step is kept.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from etils import epath

from realm_jax.artifacts.index_update import listed_segments, segments_of_updates
from realm_jax.artifacts.verify import step_parents
from realm_jax.errors import DamageError, InputError
from realm_jax.storage import commit, files, integrity, sealed
from realm_jax.storage.layout import MANIFEST, POINTER, RunDir, path_of, step_name, step_of


class _Repair(NamedTuple):
    path: epath.Path
    because: str
    done: str  # description of the action


def repair(folder: epath.PathLike, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Deletes damaged steps and a damaged end marker, and corrects pointers.

    Neither job may be running. Corpora and configs are not changed: they cannot be rebuilt from the
    run.

    Args:
      folder: a run, or one step of it.
      dry_run: returns the actions without doing them.

    Returns:
      `[{"file", "because", "done"}]`; files are relative to the run, or to the parent of the step.

    Raises:
      InputError: the folder is neither, or the address cannot be read on this machine.
    """
    folder = path_of(folder)
    if step_of(folder.name) is not None and folder.exists():
        root, plan = folder.parent, list(_repairs_of_steps(folder.parent, [folder.name]))
    elif parents := step_parents(folder):
        run = RunDir(folder)
        bad = _bad_segments(run)
        useless = _useless_updates(run, bad)
        by_parent = [
            _repairs_of_steps(
                parent, files.list_names(parent), useless if parent == run.index_updates else {}
            )
            for parent in parents
        ]
        root, plan = folder, [one for some in by_parent for one in some]
        plan += [_Repair(run.segments / name, "damaged or unfinished", "deleted") for name in bad]
        plan += _repairs_of_end_marker(run)
    else:
        raise InputError(
            "nothing to repair in this folder", where=folder, expected="a run, or a step of one"
        )
    for one in plan if not dry_run else ():
        _apply(one.path)
    return [
        {"file": str(one.path.relative_to(root)), "because": one.because, "done": one.done}
        for one in plan
    ]


def _repairs_of_steps(
    parent: epath.Path, names: list[str], useless: Mapping[str, str] = MappingProxyType({})
) -> Iterator[_Repair]:
    """Repairs of these steps, and of the pointer, which may name a deleted step.

    `useless`: names of undamaged steps to delete -> the reason.
    """
    deleted = set()
    for name in names:
        if step_of(name) is None or not (parent / name / MANIFEST).exists():
            continue
        problems = integrity.verify(parent / name)
        if name in useless:
            deleted.add(step_of(name))
            yield _Repair(parent / name, useless[name], "deleted")
        elif all(problem["expected"] == integrity.NO_FILE for problem in problems):
            for problem in problems:
                extra = parent / name / problem["file"]
                yield _Repair(extra, "not in the manifest of its step", "deleted")
        else:
            deleted.add(step_of(name))
            bad = ", ".join(problem["file"] for problem in problems)
            yield _Repair(parent / name, f"damaged: {bad}", "deleted")
    left = [step for step in commit.steps(parent) if step not in deleted]
    because = _wrong_pointer(parent, left)
    if because:
        action = f"set to {step_name(left[-1])}" if left else "deleted: no step is left"
        yield _Repair(parent / POINTER, because, action)


def _bad_segments(run: RunDir) -> list[str]:
    return [
        name for name in files.list_names(run.segments) if integrity.verify(run.segments / name)
    ]


def _useless_updates(run: RunDir, bad: list[str]) -> dict[str, str]:
    """Updates that list a segment which is damaged or does not exist -> the reason."""
    unusable = {*bad, *(listed_segments(run) - set(files.list_names(run.segments)))}
    found = {step_name(number): names for number, names in segments_of_updates(run).items()}
    return {
        step: f"lists the damaged segment {min(unusable & set(names))}"
        for step, names in found.items()
        if unusable & set(names)
    }


def _wrong_pointer(parent: epath.Path, left: list[int]) -> str | None:
    try:
        pointer = commit.read_pointer(parent)
    except DamageError as error:
        return error.problem
    if pointer is None or pointer["step"] in left:
        return None
    return f"names {step_name(pointer['step'])}, which is not a published step"


def _repairs_of_end_marker(run: RunDir) -> list[_Repair]:
    try:
        sealed.read(run.end_marker)
    except DamageError as error:
        return [
            _Repair(
                run.end_marker,
                error.problem,
                "deleted: the next run of the command writes it again",
            )
        ]
    return []


def _apply(path: epath.Path) -> None:
    """Does one action; damaged steps are deleted before the pointer that named one is corrected."""
    left = commit.steps(path.parent) if path.name == POINTER else []
    if left:
        commit.write_pointer(path.parent, left[-1])
    elif path.is_dir():
        files.delete_file(path / MANIFEST)  # first, as in retention: from now on it is not a step
        files.delete_tree(path)
    else:
        files.delete_file(path)
