"""Is this folder what was written? A step of a run, a whole run, a corpus, weights for others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax import config as config_lib
from realm_jax.errors import DamageError, RealmError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import (
    CHECKPOINTS,
    CONFIG,
    CORPUS,
    MANIFEST,
    POINTER,
    PUBLISHED_INDEX,
    SNAPSHOTS,
    RunDir,
    path_of,
    step_name,
    step_of,
)

ARRAYS_MANIFEST = "manifest.json"  # of a passage store or a span store
_KINDS = {"passage store": "corpus", "span store": "spans"}

Problems = Iterator[dict[str, Any]]


def check(folder: epath.PathLike) -> dict[str, Any]:
    """Looks at every byte and changes nothing.

    Returns:
      `{"ok": bool, "kind": str, "problems": [{"file", "expected", "found"}]}`, where kind is
      snapshot, published_index, checkpoint, export, tagger, steps (a folder of them), corpus,
      spans, run, weights or unknown. In a run, every published step and every corpus in it is
      checked, and files are named from the run folder; unfinished steps are no problem. Weights, as
      of `realm export`, have no checksums: they are sound if they can be read.

    Raises:
      InputError: an address that cannot be read here.
    """
    folder = path_of(folder)
    if (folder / MANIFEST).exists():
        return _report(_kind(folder), commit.verify(folder))
    if (folder / ARRAYS_MANIFEST).exists():
        kind = _arrays_kind(folder)
        return _report(kind, list(_arrays_problems(folder, kind)))
    if _is_run(folder):
        return _report("run", list(_run_problems(folder)))
    if _holds_steps(folder):
        return check_steps(folder)
    if files.is_local(folder):
        from realm_jax.interop import check as weights

        if weights.holds_weights(Path(folder)):
            return _report("weights", list(weights.problems(Path(folder))))
    expected = f"a run folder, or {MANIFEST} or {ARRAYS_MANIFEST} or weights in it"
    found = ", ".join(files.list_names(folder)[:8]) or "nothing"
    return _report("unknown", [_problem(str(folder), expected, found)])


def check_steps(parent: epath.PathLike) -> dict[str, Any]:
    """What `check` says of steps beside each other; sound, too, where the last one was dropped."""
    return _report("steps", list(_step_problems(epath.Path(parent))))


def run_of(folder: epath.PathLike) -> epath.Path | None:
    """The run that a folder is, or is a part of, there or not; None if it is neither."""
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


def _arrays_kind(folder: epath.Path) -> str:
    try:
        return _KINDS.get(json.loads((folder / ARRAYS_MANIFEST).read_text())["kind"], "unknown")
    except (ValueError, KeyError, TypeError):
        return "unknown"


def _arrays_problems(folder: epath.Path, kind: str) -> Problems:
    """Of a passage store, its spans included, or of a span store."""
    from realm_jax.corpus.spans import FOLDER
    from realm_jax.corpus.spans import KIND as SPANS
    from realm_jax.corpus.store import KIND as PASSAGES
    from realm_jax.storage import resumable_folder as arrays

    try:
        yield from arrays.problems(Path(folder), SPANS if kind == "spans" else PASSAGES)
    except RealmError as error:
        yield _problem(ARRAYS_MANIFEST, error.expected, error.found or error.problem)
    if kind != "spans" and (folder / FOLDER).exists():
        yield from _inside(FOLDER, _arrays_problems(folder / FOLDER, "spans"))


def _inside(prefix: str, problems: Problems) -> Problems:
    """The same problems, with files named from a folder above."""
    for problem in problems:
        yield {**problem, "file": f"{prefix}/{problem['file']}"}


def step_parents(folder: epath.Path) -> list[epath.Path]:
    """The folders of a run that hold step folders."""
    run = RunDir(folder)
    stages = [run.checkpoints(stage) for stage in files.list_names(folder / CHECKPOINTS)]
    candidates = [folder / SNAPSHOTS, folder / PUBLISHED_INDEX, *stages, run.export, run.tagger]
    return [parent for parent in candidates if parent.exists()]


def _is_run(folder: epath.Path) -> bool:
    """Whether steps or corpora of a run lie in it, or its config: weights have a config.json, too.

    So has an unfinished step, the config of its run.
    """
    if any(map(_holds_steps, step_parents(folder))) or _corpora(folder):
        return True
    config = folder / CONFIG
    return step_of(folder.name) is None and config.exists() and config_lib.is_config(_json(config))


def _holds_steps(parent: epath.Path) -> bool:
    named = [name for name in files.list_names(parent) if step_of(name) is not None]
    return any((parent / name / MANIFEST).exists() for name in named)


def _corpora(folder: epath.Path) -> list[epath.Path]:
    """Those that a run made for itself."""
    found = [folder / CORPUS / name for name in files.list_names(folder / CORPUS)]
    return [corpus for corpus in found if (corpus / ARRAYS_MANIFEST).exists()]


def _run_problems(folder: epath.Path) -> Problems:
    run = RunDir(folder)
    if run.config.exists() and _json(run.config) is None:
        yield _problem(CONFIG, "JSON", "something else")
    yield from _torn(run.end_marker)
    for parent in step_parents(folder):
        yield from _inside(str(parent.relative_to(folder)), _step_problems(parent))
    for corpus in _corpora(folder):
        inner = _arrays_problems(corpus, _arrays_kind(corpus))
        yield from _inside(f"{CORPUS}/{corpus.name}", inner)


def _step_problems(parent: epath.Path) -> Problems:
    """Of every step that has a manifest, sound or not, and of the pointer to the newest."""
    for name in files.list_names(parent):
        if step_of(name) is not None and (parent / name / MANIFEST).exists():
            yield from _inside(name, iter(commit.verify(parent / name)))
    try:
        pointer = commit.read_pointer(parent)
    except DamageError as error:
        yield _problem(POINTER, error.expected, error.found)
        return
    if pointer is not None and not (parent / step_name(pointer["step"]) / MANIFEST).exists():
        missing = f"{step_name(pointer['step'])}/{MANIFEST}"
        yield _problem(missing, f"a manifest: {POINTER} names this step", "none")


def _torn(path: epath.Path) -> Problems:
    """A sealed file that is not as it was written; one that is not there is no problem."""
    try:
        files.read_sealed(path)
    except DamageError as error:
        yield _problem(path.name, error.expected, error.found)


def _json(path: epath.Path) -> Any:
    """What the file says; None if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None
