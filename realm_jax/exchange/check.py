"""Is this folder what was published? Snapshots, indexes, checkpoints, corpora and whole runs."""

from typing import Any

from etils import epath

from realm_jax.errors import DamageError, RealmError
from realm_jax.exchange import commit, files
from realm_jax.exchange.layout import (
    CHECKPOINTS,
    MANIFEST,
    PUBLISHED_INDEX,
    SNAPSHOTS,
    RunDir,
    step_of,
)

CORPUS_MANIFEST = "manifest.json"


def check(folder: epath.PathLike) -> dict[str, Any]:
    """Looks at every byte and changes nothing.

    Returns:
      `{"ok": bool, "kind": str, "problems": [{"file", "expected", "found"}]}`, where kind is
      snapshot, published_index, checkpoint, corpus, run or unknown. In a run, every published step
      is checked and files are named from the run folder; unfinished steps are no problem.
    """
    folder = epath.Path(folder)
    if (folder / MANIFEST).exists():
        return _report(_kind(folder), commit.verify(folder))
    if (folder / CORPUS_MANIFEST).exists():
        return _report("corpus", _corpus_problems(folder))
    if parents := _parents(folder):
        return _report("run", [problem for parent in parents for problem in _below(folder, parent)])
    expected = f"a run folder, or {MANIFEST} or {CORPUS_MANIFEST} in it"
    found = ", ".join(files.list_names(folder)[:8]) or "nothing"
    return _report("unknown", [{"file": str(folder), "expected": expected, "found": found}])


def _report(kind: str, problems: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ok": not problems, "kind": kind, "problems": problems}


def _kind(folder: epath.Path) -> str:
    try:
        manifest = commit.read_manifest(folder)
    except DamageError:
        manifest = None
    return "unknown" if manifest is None else manifest["kind"]


def _corpus_problems(folder: epath.Path) -> list[dict[str, Any]]:
    from realm_jax.corpus import store

    try:
        return list(store.verify(folder))
    except RealmError as error:
        file = str(error.where or CORPUS_MANIFEST)
        return [{"file": file, "expected": error.expected, "found": error.found or error.problem}]


def _parents(folder: epath.Path) -> list[epath.Path]:
    """The folders of a run that hold step folders."""
    run = RunDir(folder)
    stages = [run.checkpoints(stage) for stage in files.list_names(folder / CHECKPOINTS)]
    candidates = [folder / SNAPSHOTS, folder / PUBLISHED_INDEX, *stages]
    return [parent for parent in candidates if parent.exists()]


def _below(run: epath.Path, parent: epath.Path) -> list[dict[str, Any]]:
    """Problems of every step under `parent` that has a manifest, sound or not."""
    steps = [name for name in files.list_names(parent) if step_of(name) is not None]
    return [
        {**problem, "file": f"{parent.relative_to(run)}/{name}/{problem['file']}"}
        for name in steps
        if (parent / name / MANIFEST).exists()
        for problem in commit.verify(parent / name)
    ]
