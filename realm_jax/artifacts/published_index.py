"""Published indexes: the folders that the index builder writes and the trainer reads."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float, Float16, Int64

from realm_jax.artifacts.params import load_parameters, save_parameters
from realm_jax.corpus.concatenated import Concatenated
from realm_jax.corpus.fingerprints import Fingerprints
from realm_jax.errors import MismatchError
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import LocalSearcher, Searcher, load_searcher
from realm_jax.retrieval.searcher_files import saved_kinds
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import (
    CONFIG,
    FINGERPRINTS,
    QUERY_PARAMETERS,
    ROWS,
    SEARCHER,
    VECTORS,
    RunDir,
)

KIND = "published_index"
Vectors = Float[np.ndarray, "N E"] | Concatenated

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedIndex:
    """A verified index, opened.

    Attributes:
      step: step of the snapshot from which it was built.
      searcher: returns index rows.
      rows: index row -> passage id.
      vectors: passage vectors by index row, memory-mapped; fine-tuning scores passages with them.
      query_params: parameters of the query embedder of the same snapshot, used for search.
      config_json: config of that snapshot.
      manifest: all recorded fields.
      hidden: index rows, ascending, that the searcher never returns (`index_update`).
    """

    step: int
    searcher: Searcher
    rows: Int64[np.ndarray, "N"]
    vectors: Any  # float16 [N, E], or `Concatenated` ones
    query_params: dict[str, Any]
    config_json: str
    manifest: dict[str, Any]
    hidden: Int64[np.ndarray, "H"] = field(default_factory=lambda: np.empty(0, np.int64))

    def vectors_of(self, passages: Int64[np.ndarray, "*some"]) -> Float16[np.ndarray, "*some E"]:
        """Vectors of passages by passage id; each must be in the index."""
        return self.vectors[self.row_of[passages]]

    @cached_property
    def row_of(self) -> Int64[np.ndarray, "ids"]:
        """Passage id -> index row; -1 for ids that are not in the index."""
        row_of = np.full(int(self.rows.max()) + 1, -1, np.int64)
        visible = np.delete(np.arange(len(self.rows)), self.hidden)
        row_of[self.rows[visible]] = visible
        return row_of


def publish_index(
    run: RunDir,
    step: int,
    searcher: LocalSearcher,
    rows: Int64[np.ndarray, "N"],
    vectors: Vectors,
    query_params: dict[str, Any],
    fields: dict[str, Any],
    config_json: str,
    still_allowed: Callable[[], None] = lambda: None,
    fingerprints: Fingerprints | None = None,
) -> bool:
    """Publishes the index built from the snapshot of `step`.

    Args:
      run: the run folder.
      step: step of the snapshot.
      searcher: over N vectors.
      rows: index row -> passage id.
      vectors: what the searcher was built from; kept in float16.
      query_params: nested dict of the snapshot's query-embedder parameters.
      fields: other manifest fields, as JSON values: snapshot_step, config_hash, corpus_hash,
        passages, dtype, recall ... `dims` and `searcher` come from the searcher.
      config_json: the snapshot's config.
      still_allowed: see `commit.publish`.
      fingerprints: of the passages of the corpus, by which a later version of it is compared.

    Returns:
      False if that step is already published; it is not changed.
    """
    if rows.shape != (searcher.size,):
        raise MismatchError(
            "row map does not fit the searcher",
            where="publish_index",
            expected=f"{searcher.size} rows",
            found=list(rows.shape),
        )

    def write(folder: epath.Path) -> None:
        with files.external_write(folder):
            (folder / SEARCHER).mkdir(parents=True, exist_ok=True)
            searcher.save(Path(folder / SEARCHER))
        failpoint("searcher.written")
        files.write_array(folder / ROWS, rows.astype(np.int64))
        files.write_array(folder / VECTORS, vectors, np.float16)
        if fingerprints is not None:
            files.write_array(folder / FINGERPRINTS, fingerprints)
        save_parameters(folder / QUERY_PARAMETERS, query_params)
        files.write_bytes(folder / CONFIG, config_json.encode())

    measured = {"dims": searcher.dims, "searcher": searcher.kind, "kind": KIND}
    return commit.publish(run.published_index, step, write, {**fields, **measured}, still_allowed)


def open_index(
    folder: epath.PathLike,
    expect: Mapping[str, Any] | None = None,
    mesh: Any = None,
    load: Callable[[Path, Any], Searcher] = load_searcher,
    skip: integrity.Skip = lambda name: False,
) -> PublishedIndex:
    """Opens an index after it has verified every byte and every expected field.

    Args:
      folder: a step folder of `RunDir.published_index`. Local files stay memory-mapped: acquire a
        lease before the call, and hold it while the index is in use.
      expect: manifest fields that must match, such as `{"corpus_hash": ..., "dims": 128}`.
      mesh: over which a mesh searcher shards its rows; None is all devices.
      load: loads a searcher from its folder and the mesh.
      skip: says of the name of a file whether `load` does not read it.

    Raises:
      NotPublishedError: there is no index, or it was deleted during the call.
      DamageError: a file is damaged; the error names it.
      MismatchError: a field differs; the error names it and both values.
    """
    folder = epath.Path(folder)
    with integrity.verified(folder, KIND, skip) as (copy, manifest):
        failpoint("index.verified")
        for field, expected in (expect or {}).items():
            if manifest.get(field) != expected:
                raise MismatchError(
                    f"index has another {field}",
                    where=folder,
                    expected=f"{field} {expected}",
                    found=f"{field} {manifest.get(field)}",
                    fix="build the index from this run's snapshots and corpus",
                )
        index = PublishedIndex(
            step=manifest["step"],
            searcher=_load_searcher(copy, mesh, load),
            rows=np.load(copy / ROWS),
            vectors=np.load(copy / VECTORS, mmap_mode="r"),
            query_params=load_parameters(copy / QUERY_PARAMETERS),
            config_json=(copy / CONFIG).read_text(),
            manifest=manifest,
        )
    if index.rows.shape != (index.searcher.size,):
        raise MismatchError(
            "row map does not fit the searcher",
            where=folder,
            expected=f"{index.searcher.size} rows",
            found=list(index.rows.shape),
        )
    return index


def _load_searcher(
    folder: epath.Path, mesh: Any, load: Callable[[Path, Any], Searcher]
) -> Searcher:
    """The searcher of an index; exact search over its vectors, if it needs ScaNN and has none."""
    if "scann" in saved_kinds(Path(folder / SEARCHER)) and find_spec("scann") is None:
        log.warning("ScaNN is not installed: the index of %s is searched exactly", folder)
        return ExactSearcher(np.load(folder / VECTORS).astype(np.float32))
    return load(Path(folder / SEARCHER), mesh)
