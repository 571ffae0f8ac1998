"""The files of the generations of a corpus.

The folder of a corpus is generation 1. A later generation g is the folder `generations/<g>` in it,
published with `storage.commit`:

| file | dtype, shape | content |
|---|---|---|
| `part/` | | the passages that it writes, in the files of a corpus; missing if there are none |
| `ids.npy` | int64 [R] | passage id of each row of `part`, ascending |
| `removed.npy` | int64 [D] | ids, ascending, that do not exist from here on |
| `changes.npy` | int64 [C, 2] | changed ids, ascending, each with its last generation |
| `MANIFEST.json` | | the fields of `FIELDS`; checksums; written last |

The manifest lists `layers`: the generations whose files make up this one, oldest first. A passage
is read from the newest layer that writes or removes its id. `lineage.py` has the hashes of all
generations.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int64

from realm_jax.corpus import lineage
from realm_jax.errors import DamageError, RealmError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import GENERATIONS, MANIFEST, POINTER, step_name, step_of

KIND = "corpus_generation"
PART, IDS, REMOVED = "part", "ids.npy", "removed.npy"
CHANGES = "changes.npy"
FIELDS: dict[str, Any] = {
    "corpus_hash": str,
    "layers": list,  # generations
    "size": int,  # highest passage id + 1
    "passages": int,  # that exist
    "added": int,  # documents, or passages if passages were written
    "replaced": int,
    "removed": int,
    lineage.FIELD: list,  # of hashes
}
_REBUILD = "realm corpus build, with all documents, in a new corpus folder"


@dataclass(frozen=True)
class Layer:
    """The files of one generation after the first.

    Attributes:
      generation: its number.
      part: folder of its passages; None if it only removes some.
      ids: passage id of each row of the part, ascending.
      removed: ids that do not exist from here on.
      changes: changed ids, ascending, each with the generation that last changed it.
    """

    generation: int
    part: Path | None
    ids: Int64[np.ndarray, "R"]
    removed: Int64[np.ndarray, "D"]
    changes: Int64[np.ndarray, "C 2"]


def parent_of(corpus: epath.PathLike) -> epath.Path:
    """The folder of the generations after the first; need not exist."""
    return epath.Path(corpus) / GENERATIONS


def folder_of(corpus: str | Path, generation: int) -> Path:
    """The folder of a generation after the first."""
    return Path(parent_of(corpus) / step_name(generation))


def newest_generation(corpus: epath.PathLike) -> int:
    """The newest published generation of a corpus, 1 if it never changed; reads one small file.

    Unlike `commit.latest` it does not replace a damaged generation by the one before, and counts
    one whose writer was killed before the pointer moved.
    """
    newest = pointed_generation(corpus) or max(finished_generations(corpus), default=1)
    while (parent_of(corpus) / step_name(newest + 1) / MANIFEST).exists():
        newest += 1
    return newest


def pointed_generation(corpus: epath.PathLike) -> int | None:
    """The generation that the pointer names; None if there is no pointer, or it is damaged."""
    try:
        pointer = commit.read_pointer(parent_of(corpus))
    except DamageError:
        return None
    return None if pointer is None else int(pointer["step"])


def finished_generations(corpus: epath.PathLike) -> list[int]:
    """Generations after the first that have a manifest, also a damaged one; ascending."""
    parent = parent_of(corpus)
    named = [(step_of(name), name) for name in files.list_names(parent)]
    return [s for s, name in named if s is not None and (parent / name / MANIFEST).exists()]


def read_generation(corpus: str | Path, generation: int) -> dict[str, Any]:
    """The manifest of a generation after the first, after a comparison of the sizes of its files.

    Raises:
      DamageError: a file is missing or has another size.
    """
    folder = folder_of(corpus, generation)
    if not (folder / MANIFEST).exists():
        raise DamageError(
            "a generation of the corpus is missing",
            where=folder,
            expected=MANIFEST,
            found="none",
            fix="copy the folder of the corpus again, with all its files",
        )
    return integrity.read_sized(folder, KIND, _REBUILD, **FIELDS)


def read_layer(corpus: str | Path, generation: int) -> Layer:
    """Reads the ids of a generation after the first; raises as `read_generation`."""
    read_generation(corpus, generation)
    folder = folder_of(corpus, generation)
    return Layer(
        generation,
        folder / PART if (folder / PART).exists() else None,
        np.load(folder / IDS),
        np.load(folder / REMOVED),
        np.asarray(np.load(folder / CHANGES, mmap_mode="r")),
    )


def generation_problems(corpus: epath.PathLike) -> list[dict[str, Any]]:
    """Problems that no single folder shows: of the pointer, the lineage and missing generations."""
    parent = parent_of(corpus)
    try:
        commit.read_pointer(parent)
    except DamageError as error:
        pointer = f"{GENERATIONS}/{POINTER}"
        return [{"file": pointer, "expected": error.expected, "found": error.found}]
    newest, present = newest_generation(corpus), {1, *finished_generations(corpus)}
    try:
        manifest = commit.read_manifest(parent / step_name(newest)) if newest > 1 else None
    except RealmError:
        return []  # the check of its folder reports it
    if manifest is None:
        needed, of_lineage = {newest}, []
    else:
        needed = {newest, *manifest["layers"]}
        of_lineage = lineage.lineage_problems(corpus, newest, manifest)
    names = [f"{GENERATIONS}/{step_name(one)}/{MANIFEST}" for one in sorted(needed - present)]
    expected = f"a manifest: generation {newest} needs this one"
    return of_lineage + [{"file": one, "expected": expected, "found": "none"} for one in names]
