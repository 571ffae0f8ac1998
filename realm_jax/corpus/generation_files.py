"""The files of the generations of a corpus.

The folder of a corpus is generation 1. A later generation g is the folder `generations/<g>` in it,
published with `storage.commit`:

| file | dtype, shape | content |
|---|---|---|
| `part/` | | the passages that it writes, in the files of a corpus; missing if there are none |
| `ids.npy` | int64 [R] | passage id of each row of `part`; -1: not used. Missing: id = row |
| `removed.npy` | int64 [D] | ids, ascending, that do not exist from here on |
| `changes.npy` | int64 [C, 2] | changed ids, ascending, each with its last generation |
| `lineage.bin` | bytes [32 g] | `corpus_hash` of the generations 1 to g |
| `MANIFEST.json` | | the fields of `FIELDS`; checksums; written last |

The manifest lists `layers`: the generations whose files make up this one, oldest first. A passage
is read from the newest layer that writes or removes its id.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Int64

from realm_jax.errors import InputError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import step_name

KIND = "corpus_generation"
FOLDER = "generations"
PART, IDS, REMOVED = "part", "ids.npy", "removed.npy"
CHANGES, LINEAGE = "changes.npy", "lineage.bin"
FIELDS: dict[str, Any] = {
    "corpus_hash": str,
    "layers": list,  # generations
    "size": int,  # highest passage id + 1
    "passages": int,  # that exist
    "added": int,  # documents, or passages if passages were written
    "replaced": int,
    "removed": int,
}
HASH_BYTES = 32
_REBUILD = "realm corpus build --format=FORMAT --input=INPUT --out=FOLDER"


@dataclass(frozen=True)
class Layer:
    """The files of one generation after the first.

    Attributes:
      generation: its number.
      part: folder of its passages; None if it only removes some.
      ids: passage id of each row of the part, -1 for rows that are not used; None: id = row.
      removed: ids that do not exist from here on.
    """

    generation: int
    part: Path | None
    ids: Int64[np.ndarray, "R"] | None
    removed: Int64[np.ndarray, "D"]


def parent_of(corpus: str | Path) -> epath.Path:
    """The folder of the generations after the first; need not exist."""
    return epath.Path(corpus) / FOLDER


def folder_of(corpus: str | Path, generation: int) -> Path:
    """The folder of a generation after the first."""
    return Path(parent_of(corpus) / step_name(generation))


def newest_generation(corpus: str | Path) -> int:
    """The newest published generation of a corpus, 1 if it never changed; reads one small file."""
    parent = parent_of(corpus)
    return (commit.latest(parent) or 1) if parent.exists() else 1


def read_generation(corpus: str | Path, generation: int) -> dict[str, Any]:
    """The manifest of a generation after the first, after a comparison of the sizes of its files.

    Raises:
      InputError: it does not exist, or its files were deleted by a compaction.
      DamageError: a file is missing or has another size.
    """
    folder = folder_of(corpus, generation)
    if not commit.is_published(epath.Path(folder)):
        raise InputError(
            "this generation of the corpus does not exist",
            where=folder,
            expected=f"a generation up to {newest_generation(corpus)} that was not compacted",
            found=f"generation {generation}",
            fix="leave the generation out to read the newest one",
        )
    return integrity.read_sized(folder, KIND, _REBUILD, **FIELDS)


def read_layer(corpus: str | Path, generation: int) -> Layer:
    """Reads the ids of a generation after the first; raises as `read_generation`."""
    read_generation(corpus, generation)
    folder = folder_of(corpus, generation)
    part = folder / PART
    return Layer(
        generation,
        part if part.exists() else None,
        np.load(folder / IDS) if (folder / IDS).exists() else None,
        np.load(folder / REMOVED),
    )


def read_changes(corpus: str | Path, generation: int) -> Int64[np.ndarray, "C 2"]:
    """Passage ids, ascending, and the generation that last changed each; of one layer."""
    if generation == 1:
        return np.empty((0, 2), np.int64)
    return np.asarray(np.load(folder_of(corpus, generation) / CHANGES, mmap_mode="r"))


def read_lineage(corpus: str | Path, generation: int) -> tuple[str, ...]:
    """`corpus_hash` of the generations 1 to `generation`, which is not the first."""
    data = files.read_bytes(epath.Path(folder_of(corpus, generation)) / LINEAGE) or b""
    return tuple(data[i : i + HASH_BYTES].hex() for i in range(0, len(data), HASH_BYTES))
