"""Segments: immutable folders with the vectors of some passages, and a searcher over them.

A segment lies in `W/segments/NAME`; its name follows from its content, so the same vectors are
written once. `index_update` lists the segments that are searched together.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float, Float16, Int64

from realm_jax.errors import MismatchError
from realm_jax.retrieval.searcher import LocalSearcher, load_searcher
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import MANIFEST, ROWS, SEARCHER, VECTORS, RunDir

KIND = "segment"


@dataclass(frozen=True)
class Segment:
    """A segment, opened.

    Attributes:
      name: of its folder.
      searcher: returns rows of this segment.
      rows: row -> passage id.
      vectors: passage vectors by row, memory-mapped.
    """

    name: str
    searcher: LocalSearcher
    rows: Int64[np.ndarray, "N"]
    vectors: Float16[np.ndarray, "N E"]


def publish_segment(
    run: RunDir,
    step: int,
    searcher: LocalSearcher,
    rows: Int64[np.ndarray, "N"],
    vectors: Float[np.ndarray, "N E"],
    still_allowed: Callable[[], None] = lambda: None,
) -> str:
    """Publishes a segment and returns its name; writes nothing if it is published already.

    Args:
      run: the run folder.
      step: snapshot whose embedder computed the vectors.
      searcher: over the vectors.
      rows: row -> passage id.
      vectors: kept in float16.
      still_allowed: see `commit.publish`.

    Raises:
      OvertakenError: another process wrote or deleted the same segment meanwhile.
    """

    def write(folder: epath.Path) -> None:
        with files.external_write(folder):
            (folder / SEARCHER).mkdir(parents=True, exist_ok=True)
            searcher.save(Path(folder / SEARCHER))
        files.write_array(folder / ROWS, rows)
        files.write_array(folder / VECTORS, vectors, np.float16)

    name = name_of(step, searcher.kind, rows, vectors)
    if not commit.is_published(run.segments / name):
        fields = {"kind": KIND, "snapshot_step": step, "passages": len(rows)}
        fields |= {"dims": searcher.dims, "searcher": searcher.kind}
        commit.publish_folder(run.segments / name, write, fields, still_allowed)
        failpoint("segment.committed")
    return name


def name_of(
    step: int, kind: str, rows: Int64[np.ndarray, "N"], vectors: Float[np.ndarray, "N E"]
) -> str:
    """The name of a segment, from its content.

    The letter keeps a name of digits from being taken for a step.
    """
    content = hashlib.sha256(f"{step} {kind} ".encode())
    content.update(rows.astype(np.int64).tobytes())
    for start in range(0, len(vectors), 65_536):
        content.update(vectors[start : start + 65_536].astype(np.float16).tobytes())
    return f"s{content.hexdigest()[:32]}"


def open_segment(
    run: RunDir, name: str, load: Callable[[Path, Any], LocalSearcher] = load_searcher
) -> Segment:
    """Opens a segment after it has verified every byte.

    Args:
      run: the run folder.
      name: of the segment.
      load: see `open_index`.

    Raises:
      NotPublishedError: there is no such segment, or it was deleted during the call.
      DamageError: a file is damaged; the error names it.
    """
    with integrity.verified(run.segments / name, KIND) as (copy, _):
        failpoint("segment.verified")
        searcher = load(Path(copy / SEARCHER), None)
        rows = np.load(copy / ROWS)
        vectors = np.load(copy / VECTORS, mmap_mode="r")
    if rows.shape != (searcher.size,):
        raise MismatchError(
            "row map does not fit the searcher",
            where=run.segments / name,
            expected=f"{searcher.size} rows",
            found=list(rows.shape),
        )
    return Segment(name, searcher, rows, vectors)


def delete_segments(run: RunDir, names: Iterable[str]) -> None:
    """Deletes segments, finished or not."""
    for name in names:
        files.delete_file(run.segments / name / MANIFEST)  # from now on it is not published
        failpoint("segment.unlisted")
        files.delete_tree(run.segments / name)
