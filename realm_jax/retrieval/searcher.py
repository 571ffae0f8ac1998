"""Maximum inner product search: the protocol of searchers, and functions to build and load them.

Two kinds of numbers identify a passage:

- *index row*: 0 .. N - 1, the order of the vectors from which a searcher was built. Searchers use
  only index rows.
- *passage id*: the position of a passage in the knowledge corpus. A published index stores the map
  from index rows to passage ids, which `retriever.search` applies.

The null passage is never in an index: it has neither a row nor an id in the corpus.
"""

import functools
import logging
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int32

from realm_jax.errors import ConfigError, DamageError, InputError, MismatchError
from realm_jax.retrieval.searcher_files import DESCRIPTION, SEGMENTED, read_description

# kind -> module and class; imported on first use, because each needs another library
_CLASSES = {
    "scann": ("scann_searcher", "ScannSearcher"),
    "exact": ("exact_searcher", "ExactSearcher"),
    "mesh": ("mesh_searcher", "MeshSearcher"),
    "faiss": ("faiss_searcher", "FaissSearcher"),
    SEGMENTED: ("segmented_searcher", "SegmentedSearcher"),
}
KINDS = tuple(kind for kind in _CLASSES if kind != SEGMENTED)  # of search.kind


class Part(NamedTuple):
    """Segments `first`, `first` + `every`, ... of an index."""

    first: int
    every: int


WHOLE = Part(0, 1)

log = logging.getLogger(__name__)


@runtime_checkable
class Searcher(Protocol):
    """Finds, for each query, the index rows of the largest inner products."""

    kind: str
    size: int  # N
    dims: int  # E
    bytes: int  # memory of the loaded vectors and codes

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """Searches for the `k` rows with the largest inner products.

        Args:
          queries: [B, E], finite.
          k: 1 to N.

        Returns:
          Index rows and inner products, best first. Exact searchers put the lower row first in a
          tie. Padding rows are never returned.

        Raises:
          MismatchError: the queries have another dimension, or `k` is larger than the index.
          InputError: a query is not finite.
        """


@runtime_checkable
class LocalSearcher(Searcher, Protocol):
    """A searcher whose index is in the memory of this process."""

    def widen(self) -> bool:
        """Scores four times as many rows per query from now on; False if all are scored already."""

    def save(self, folder: Path) -> None:
        """Writes the files that `load_searcher` reads into an existing local folder."""


@runtime_checkable
class ReencodableSearcher(LocalSearcher, Protocol):
    """A searcher with trained centres and codebooks, which can be kept for new vectors."""

    plan: dict[str, Any]  # see `search_plan.make_plan`

    def replan(self, options: Any) -> bool:
        """Searches as `config.search`, `options`, says from now on; undoes `widen`.

        Returns:
          False if the index has to be trained again for these settings; then nothing is changed.
        """

    def reencode(self, vectors: Float32[np.ndarray, "N E"]) -> None:
        """Replaces all vectors, assigned to the trained partitions and codes.

        No other thread may search during the call.
        """


@runtime_checkable
class ThreadedSearcher(Searcher, Protocol):
    """A searcher with search threads of its own."""

    def restart_threads(self) -> None:
        """Replaces the search threads by new ones with the priority of the calling thread."""


def build_searcher(
    kind: str, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
) -> LocalSearcher:
    """Builds a searcher.

    Args:
      kind: one of `KINDS`.
      vectors: finite float32, N >= 1; may be memory-mapped.
      options: `config.search`.
      seed: of the clustering; the same seed and vectors build the same index.

    Raises:
      ConfigError: unknown kind, or its package is not installed.
      InputError: no vectors, another shape or dtype, NaN or infinity.
    """
    build = searcher_class(available_kind(kind)).build
    check_vectors(vectors)
    built: LocalSearcher = build(vectors, options, seed)
    return built


@functools.cache
def available_kind(kind: str) -> str:
    """The kind that is built for `search.kind`: where ScaNN cannot be had, FAISS or exact search.

    Logs it once for each process.
    """
    if kind != "scann" or find_spec("scann") is not None:
        return kind
    other = "exact" if find_spec("faiss") is None else "faiss"
    log.warning(
        "ScaNN is not installed (it has wheels for Linux on x86-64 and Python up to 3.13): "
        "search.kind=scann builds an index of kind %s",
        other,
    )
    return other


def searcher_class(kind: str) -> Any:
    """Imports the class of a kind: a `LocalSearcher` with class methods `build` and `load`.

    Raises:
      ConfigError: unknown kind, or its package is not installed.
    """
    if kind not in KINDS:
        raise ConfigError(
            "unknown kind of searcher",
            where="config.search.kind",
            expected=" or ".join(KINDS),
            found=repr(kind),
        )
    return _class(kind)


def _class(kind: str) -> Any:
    module, name = _CLASSES[kind]
    return getattr(import_module(f"realm_jax.retrieval.{module}"), name)


def load_searcher(folder: str | Path, mesh: Any = None, part: Part = WHOLE) -> LocalSearcher:
    """Loads a searcher that `save` wrote.

    Args:
      folder: local; it may have been moved since.
      mesh: devices for the rows of a mesh searcher; None: all devices.
      part: of a segmented searcher, the segments to load; only their files need to exist.

    Raises:
      DamageError: the files are damaged.
      MismatchError: the files have another format version.
    """
    folder = Path(folder)
    kind = read_description(folder)["kind"]
    if kind not in _CLASSES:
        raise DamageError(
            "unknown kind of searcher",
            where=folder / DESCRIPTION,
            expected=" or ".join(_CLASSES),
            found=repr(kind),
        )
    more = (part,) if kind == SEGMENTED else ()
    loaded: LocalSearcher = _class(kind).load(folder, mesh, *more)
    return loaded


def check_vectors(vectors: np.ndarray, block: int = 65_536) -> None:
    """Checks vectors before they are indexed, in blocks of `block` rows.

    Raises:
      InputError: no rows, another dtype or shape, NaN or infinity.
    """
    if vectors.ndim != 2 or vectors.dtype != np.float32 or 0 in vectors.shape:
        raise InputError(
            "the vectors cannot be indexed",
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
                fix="check whether training has diverged: the loss is probably NaN too",
            )


def check_queries(searcher: Searcher, queries: np.ndarray, k: int) -> None:
    """Raises the errors that `Searcher.search` documents."""
    if queries.ndim != 2 or queries.shape[1] != searcher.dims or queries.dtype != np.float32:
        raise MismatchError(
            "the queries do not fit the index",
            where="search",
            expected=f"float32 [B, {searcher.dims}]",
            found=f"{queries.dtype} {list(queries.shape)}",
            fix="use the query-embedder parameters published with this index",
        )
    if not 1 <= k <= searcher.size:
        raise MismatchError(
            "the index has fewer rows than the hits requested",
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
