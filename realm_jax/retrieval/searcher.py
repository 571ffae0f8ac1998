"""One protocol for maximum inner product search, and the two doors to it: build and load.

Index spaces, so that no number is read in the wrong one:

- *index row*: 0 .. N-1, the order of the vectors a searcher was built from. Searchers speak only
  this one.
- *passage id*: the place of a passage in the knowledge corpus. A published index carries the row
  map (index row -> passage id); only its reader translates.

The null passage has no row and no id: it is never in an index.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int32

from realm_jax.errors import ConfigError, DamageError, InputError, MismatchError

DESCRIPTION = "searcher.json"
# kind -> module and class; imported when asked for, for each brings a library with it
_CLASSES = {
    "scann": ("scann_searcher", "ScannSearcher"),
    "exact": ("exact_searcher", "ExactSearcher"),
    "mesh": ("mesh_searcher", "MeshSearcher"),
    "faiss": ("faiss_searcher", "FaissSearcher"),
}
KINDS = tuple(_CLASSES)
FORMAT = 1


@runtime_checkable
class Searcher(Protocol):
    """Finds, for each query, the index rows of the largest inner products."""

    kind: str
    size: int  # N
    dims: int  # E
    bytes: int  # memory that the vectors and codes take while loaded

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """Index rows and inner products of the `k` best, best first.

        Exact searchers break ties by the lower row. Every returned row is a real row.

        Raises:
          MismatchError: queries of another width, or `k` larger than the index.
          InputError: queries that are not finite.
        """


@runtime_checkable
class LocalSearcher(Searcher, Protocol):
    """A searcher of this process, as it is built and loaded."""

    def widen(self) -> bool:
        """Looks at four times as much for each query from now on; False if there is no more."""

    def save(self, folder: Path) -> None:
        """Writes files that `load_searcher` reads, into an existing local folder."""


@runtime_checkable
class ReencodableSearcher(LocalSearcher, Protocol):
    """A searcher that has learnt something from its vectors, and keeps it for others."""

    plan: dict[str, Any]

    def reencode(self, vectors: Float32[np.ndarray, "N E"]) -> None:
        """Puts other vectors of the same rows in the place of its own."""


def build_searcher(
    kind: str, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
) -> LocalSearcher:
    """A searcher over `vectors` (which may be memory-mapped).

    Args:
      kind: one of `KINDS`.
      vectors: finite float32, N >= 1.
      options: `config.search`.
      seed: of ScaNN's clustering; the same seed and vectors build the same index.

    Raises:
      ConfigError: an unknown kind.
      InputError: vectors of another shape or dtype, none at all, or NaN or infinity among them.
    """
    found = searcher_class(kind)
    check_vectors(vectors)
    built: LocalSearcher = found.build(vectors, options, seed)
    return built


def searcher_class(kind: str) -> Any:
    """The class of a kind: a `Searcher` with class methods `build` and `load`.

    To ask for it before hours of embedding tells what is not installed.

    Raises:
      ConfigError: an unknown kind, or one whose package is missing.
    """
    if kind not in _CLASSES:
        raise ConfigError(
            "unknown kind of searcher",
            where="config.search.kind",
            expected=" or ".join(KINDS),
            found=repr(kind),
        )
    module, name = _CLASSES[kind]
    return getattr(import_module(f"realm_jax.retrieval.{module}"), name)


def load_searcher(folder: str | Path, mesh: Any = None) -> LocalSearcher:
    """The searcher that `save` wrote into a local `folder`, wherever that folder lies now.

    Args:
      folder: holds the files.
      mesh: where a mesh searcher spreads its rows; None is all devices.
    """
    folder = Path(folder)
    kind = read_description(folder)["kind"]
    if kind not in KINDS:
        raise DamageError(
            "unknown kind of searcher",
            where=folder / DESCRIPTION,
            expected=" or ".join(KINDS),
            found=repr(kind),
        )
    loaded: LocalSearcher = searcher_class(kind).load(folder, mesh)
    return loaded


def write_description(folder: Path, searcher: Searcher, **more: Any) -> None:
    """Writes `searcher.json`: what the other files of the folder are."""
    description = {
        "format": FORMAT,
        "kind": searcher.kind,
        "size": searcher.size,
        "dims": searcher.dims,
        **more,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1))


def read_description(folder: Path) -> dict[str, Any]:
    """`searcher.json` of a folder: format, kind, size, dims and what the kind added."""
    path = folder / DESCRIPTION
    try:
        description = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DamageError(
            "no readable searcher here", where=path, expected="JSON", found=str(error)
        ) from error
    needed = {"format", "kind", "size", "dims"}
    if not isinstance(description, dict) or not needed <= description.keys():
        raise DamageError(
            "no searcher description", where=path, expected=sorted(needed), found=description
        )
    if description["format"] != FORMAT:
        raise MismatchError(
            "searcher of another format version",
            where=path,
            expected=FORMAT,
            found=description["format"],
            fix="build the index again with this version",
        )
    return description


def read_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array of `np.save`, memory-mapped.

    Raises:
      DamageError: it is missing or cut short, or of another shape or dtype.
    """
    expected = f"float32 {list(shape)}"
    try:
        array: np.ndarray = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DamageError(
            "no readable array here", where=path, expected=expected, found=str(error)
        ) from error
    if array.shape != shape or array.dtype != np.float32:
        raise DamageError(
            "vectors are not those described",
            where=path,
            expected=expected,
            found=f"{array.dtype} {list(array.shape)}",
        )
    return array


def check_vectors(vectors: np.ndarray, block: int = 65_536) -> None:
    """Refuses what cannot be searched: no rows, another dtype or shape, NaN or infinity."""
    if vectors.ndim != 2 or vectors.dtype != np.float32 or 0 in vectors.shape:
        raise InputError(
            "vectors cannot be indexed",
            where="build_searcher",
            expected="float32, at least one row [N, E]",
            found=f"{vectors.dtype} {list(vectors.shape)}",
        )
    for start in range(0, len(vectors), block):
        finite = np.isfinite(vectors[start : start + block]).all(axis=1)
        if not finite.all():
            raise InputError(
                "a vector is not finite",
                where=f"index row {start + int(np.argmin(finite))}",
                expected="finite numbers",
                found="NaN or infinity",
                fix="look for a diverged snapshot: its loss is likely NaN too",
            )


def check_queries(searcher: Searcher, queries: np.ndarray, k: int) -> None:
    """Refuses queries that do not fit the index, and more hits than it has rows."""
    if queries.ndim != 2 or queries.shape[1] != searcher.dims or queries.dtype != np.float32:
        raise MismatchError(
            "queries do not fit the index",
            where="search",
            expected=f"float32 [B, {searcher.dims}]",
            found=f"{queries.dtype} {list(queries.shape)}",
            fix="use the query-embedder parameters published with this index",
        )
    if not 1 <= k <= searcher.size:
        raise MismatchError(
            "the index cannot return that many hits",
            where="search, k",
            expected=f"1 to {searcher.size}, the rows of the index",
            found=k,
            fix="lower retrieval.candidates or index a larger corpus",
        )
    if not np.isfinite(queries).all():
        raise InputError(
            "a query is not finite",
            where=f"query {int(np.argmin(np.isfinite(queries).all(axis=1)))}",
            expected="finite numbers",
            found="NaN or infinity",
        )
