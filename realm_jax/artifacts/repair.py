"""Takes out of a run what is beyond use, so that both jobs go on from what is sound.

A damaged step is refused by all its readers for ever: dropping it loses nothing that could still be
read. The trainer then resumes from the checkpoint before it, and the builder builds that index anew
from its snapshot. A step that only has more files than were published loses those.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from etils import epath

from realm_jax.artifacts.verify import step_parents
from realm_jax.errors import DamageError, InputError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import MANIFEST, POINTER, RunDir, path_of, step_name, step_of


class _Repair(NamedTuple):
    path: epath.Path
    because: str
    done: str  # in words


def repair(folder: epath.PathLike, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Drops damaged steps, mends pointers, drops a torn end marker. Neither job may be running.

    Files that nobody published are deleted, and their steps stay if the rest is sound. Corpora and
    configs are left as they are: nothing here could make them again.

    Args:
      folder: a run, or one step of it.
      dry_run: says what would be done, and does nothing.

    Returns:
      `[{"file", "because", "done"}]`, with files named from the run, or from beside the step.

    Raises:
      InputError: the folder is neither, or an address that cannot be read here.
    """
    folder = path_of(folder)
    if step_of(folder.name) is not None and folder.exists():
        root, plan = folder.parent, list(_of_parent(folder.parent, [folder.name]))
    elif parents := step_parents(folder):
        of_parents = [_of_parent(parent, files.list_names(parent)) for parent in parents]
        root, plan = folder, [one for some in of_parents for one in some]
        plan += _of_end_marker(RunDir(folder))
    else:
        raise InputError("nothing to repair here", where=folder, expected="a run, or a step of one")
    for one in plan if not dry_run else ():
        _carry_out(one.path)
    return [
        {"file": str(one.path.relative_to(root)), "because": one.because, "done": one.done}
        for one in plan
    ]


def _of_parent(parent: epath.Path, names: list[str]) -> Iterator[_Repair]:
    """Of these steps, and of the pointer, which may name one that goes."""
    dropped = set()
    for name in names:
        if step_of(name) is None or not (parent / name / MANIFEST).exists():
            continue
        problems = integrity.verify(parent / name)
        if all(problem["expected"] == integrity.NO_FILE for problem in problems):
            for problem in problems:
                stray = parent / name / problem["file"]
                yield _Repair(stray, "nobody published it", "deleted")
        else:
            dropped.add(step_of(name))
            bad = ", ".join(problem["file"] for problem in problems)
            yield _Repair(parent / name, f"damaged: {bad}", "dropped")
    left = [step for step in commit.steps(parent) if step not in dropped]
    because = _wrong_pointer(parent, left)
    if because:
        to = f"pointed to {step_name(left[-1])}" if left else "dropped: no step is left"
        yield _Repair(parent / POINTER, because, to)


def _wrong_pointer(parent: epath.Path, left: list[int]) -> str | None:
    try:
        pointer = commit.read_pointer(parent)
    except DamageError as error:
        return error.problem
    if pointer is None or pointer["step"] in left:
        return None
    return f"names {step_name(pointer['step'])}, which is no published step"


def _of_end_marker(run: RunDir) -> list[_Repair]:
    try:
        files.read_sealed(run.end_marker)
    except DamageError as error:
        return [_Repair(run.end_marker, error.problem, "dropped: the same command writes it again")]
    return []


def _carry_out(path: epath.Path) -> None:
    """In the order of a plan: when a pointer is mended, the damaged steps beside it are gone."""
    left = commit.steps(path.parent) if path.name == POINTER else []
    if left:
        commit.write_pointer(path.parent, left[-1])
    elif path.is_dir():
        files.delete_file(path / MANIFEST)  # first, as retention does: then it is no step any more
        files.delete_tree(path)
    else:
        files.delete_file(path)
