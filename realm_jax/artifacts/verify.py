"""`realm check`: verifies a step of a run, a whole run, a corpus, or exported weights."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax import config as config_lib
from realm_jax.artifacts.index_update import listed_segments
from realm_jax.artifacts.run_config import NO_PATHS, Paths, replacement
from realm_jax.artifacts.run_inputs import input_problems
from realm_jax.corpus import store as corpus_store
from realm_jax.errors import DamageError, RealmError
from realm_jax.storage import commit, files, integrity, sealed
from realm_jax.storage.layout import (
    CHECKPOINTS,
    CONFIG,
    CORPUS,
    INDEX_UPDATES,
    MANIFEST,
    POINTER,
    SEGMENTS,
    RunDir,
    path_of,
    step_name,
    step_of,
)

Problems = Iterator[dict[str, Any]]


def check(folder: epath.PathLike, paths: Paths = NO_PATHS) -> dict[str, Any]:
    """Reads every byte of a folder and compares it with its checksums; changes nothing.

    In a run, every published step and every corpus is checked, and files are named relative to the
    run folder; unfinished steps are not problems. The knowledge corpus that the run reads is
    opened, wherever it is, and compared with the newest index. Weights written by `realm export`
    have no checksums: they are accepted if they can be read.

    Args:
      folder: what to check.
      paths: see `run_config`.

    Returns:
      `{"ok": bool, "kind": str, "problems": [{"file", "expected", "found"}]}`; problems other than
      damage also have a `fix`. The kind is that of the manifest, or run, steps (a folder of steps),
      weights or unknown.

    Raises:
      InputError: the address cannot be read on this machine.
    """
    folder = path_of(folder)
    if (folder / MANIFEST).exists():
        return _report(_kind(folder), list(_durable_problems(folder)))
    if (folder / integrity.OLD_MANIFEST).exists():
        return _report("unknown", list(_durable_problems(folder)))
    if _is_run(folder):
        return _report("run", [*_run_problems(folder), *input_problems(folder, paths)])
    if _holds_steps(folder):
        return check_steps(folder)
    if files.is_local(folder):
        from realm_jax.interop import check as weights

        if weights.holds_weights(Path(folder)):
            return _report("weights", list(weights.problems(Path(folder))))
    expected = f"a run folder, or a folder with {MANIFEST} or with weights"
    found = ", ".join(files.list_names(folder)[:8]) or "nothing"
    return _report("unknown", [_problem(str(folder), expected, found)])


def check_steps(parent: epath.PathLike) -> dict[str, Any]:
    """Checks a folder of steps; one without any step is valid."""
    return _report("steps", list(_step_problems(epath.Path(parent))))


def run_of(folder: epath.PathLike) -> epath.Path | None:
    """The run that `folder` is or is part of, also if `folder` does not exist; None if none."""
    near = [epath.Path(folder), *list(epath.Path(folder).parents)[:3]]
    return next((one for one in near if _is_run(one)), None)


def _report(kind: str, problems: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ok": not problems, "kind": kind, "problems": problems}


def _problem(file: str, expected: Any, found: Any) -> dict[str, Any]:
    return {"file": file, "expected": expected, "found": found}


def _kind(folder: epath.Path) -> str:
    try:
        manifest = commit.read_manifest(folder)
    except RealmError:
        manifest = None
    return "unknown" if manifest is None else manifest["kind"]


def _durable_problems(folder: epath.Path) -> Problems:
    """Problems of one folder with a manifest, also if an earlier version wrote it."""
    if (folder / integrity.OLD_MANIFEST).exists() and not (folder / MANIFEST).exists():
        found = "a folder written by an earlier version: delete it and build it again"
        yield _problem(integrity.OLD_MANIFEST, f"a folder with {MANIFEST}", found)
    elif _kind(folder) == corpus_store.KIND:
        yield from corpus_store.verify(folder)
    else:
        yield from integrity.verify(folder)


def _prefixed(prefix: str, problems: Problems) -> Problems:
    """The same problems; their files are named relative to a folder above."""
    for problem in problems:
        yield {**problem, "file": f"{prefix}/{problem['file']}"}


def step_parents(folder: epath.Path) -> list[epath.Path]:
    """The folders of a run that hold step folders."""
    run = RunDir(folder)
    stages = [run.checkpoints(stage) for stage in files.list_names(folder / CHECKPOINTS)]
    of_run = [run.snapshots, run.published_index, run.index_updates, run.export, run.tagger]
    candidates = [*of_run[:3], *stages, *of_run[3:]]
    return [parent for parent in candidates if parent.exists()]


def _is_run(folder: epath.Path) -> bool:
    """Whether a folder holds steps or corpora of a run, or the config of one.

    A file called config.json is not enough: exported weights and unfinished steps have one too.
    """
    if any(map(_holds_steps, step_parents(folder))) or _corpora(folder):
        return True
    config = folder / CONFIG
    return step_of(folder.name) is None and config.exists() and config_lib.is_config(_json(config))


def _holds_steps(parent: epath.Path) -> bool:
    named = [name for name in files.list_names(parent) if step_of(name) is not None]
    return any((parent / name / MANIFEST).exists() for name in named)


def _corpora(folder: epath.Path) -> list[epath.Path]:
    """The corpora that a run built for itself."""
    found = [folder / CORPUS / name for name in files.list_names(folder / CORPUS)]
    manifests = (MANIFEST, integrity.OLD_MANIFEST)
    return [corpus for corpus in found if any((corpus / name).exists() for name in manifests)]


def _run_problems(folder: epath.Path) -> Problems:
    run = RunDir(folder)
    if run.config.exists() and _json(run.config) is None:
        yield {**_problem(CONFIG, "JSON", "something else"), "fix": replacement(run)}
    yield from _sealed_problems(run.end_marker)
    for parent in step_parents(folder):
        yield from _prefixed(str(parent.relative_to(folder)), _step_problems(parent))
    yield from _segment_problems(run)
    for corpus in _corpora(folder):
        yield from _prefixed(f"{CORPUS}/{corpus.name}", _durable_problems(corpus))


def _segment_problems(run: RunDir) -> Problems:
    """Problems of the segments, and segments that an index update lists and that do not exist."""
    for name in files.list_names(run.segments):
        if (run.segments / name / MANIFEST).exists():
            yield from _prefixed(f"{SEGMENTS}/{name}", iter(integrity.verify(run.segments / name)))
    for name in sorted(listed_segments(run)):
        if not (run.segments / name / MANIFEST).exists():
            expected = f"a segment: an update in {INDEX_UPDATES} lists it"
            yield _problem(f"{SEGMENTS}/{name}/{MANIFEST}", expected, "none")


def _step_problems(parent: epath.Path) -> Problems:
    """Problems of every step that has a manifest, and of the pointer to the newest step."""
    for name in files.list_names(parent):
        if step_of(name) is not None and (parent / name / MANIFEST).exists():
            yield from _prefixed(name, iter(integrity.verify(parent / name)))
    try:
        pointer = commit.read_pointer(parent)
    except DamageError as error:
        yield _problem(POINTER, error.expected, error.found)
        return
    if pointer is not None and not (parent / step_name(pointer["step"]) / MANIFEST).exists():
        missing = f"{step_name(pointer['step'])}/{MANIFEST}"
        yield _problem(missing, f"a manifest: {POINTER} names this step", "none")


def _sealed_problems(path: epath.Path) -> Problems:
    """The problem of a sealed file that is cut short or altered; none if it does not exist."""
    try:
        sealed.read(path)
    except DamageError as error:
        yield _problem(path.name, error.expected, error.found)


def _json(path: epath.Path) -> Any:
    """The content of a JSON file; None if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None
