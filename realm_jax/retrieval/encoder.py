"""The one program that embeds queries and passages, and the batches that it is called with."""

import functools
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32, Int64, Integer
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.embedder_rows import EmbedderRows, indexed_length
from realm_jax.data.padding import fixed_size_batches, padded_indices
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import local_mesh, replicated

MAX_QUERIES = 512  # rows of one call for queries
_WIDTHS = 12  # row widths up to the indexed length; each width that occurs is compiled once
_MAX_PIECES_ON_CPU = 1200  # word pieces of a device's rows on CPU: fits its caches, 25 % faster


class Encoder:
    """Embeds rows of word pieces with the embedder of a model, on all devices of a mesh.

    Each device holds all params and an equal share of the rows of a call. The jitted program is
    shared by all encoders of a process with the same model, vocabulary and mesh, so each batch
    shape is compiled once per process, also across refreshes of the index.

    Args:
      config: of the run; `model`, `lengths` and `builder.batch_pieces` are used.
      vocabulary: V.
      mesh: the devices, of this process only; None: all devices of this process.

    Attributes:
      modules: the embedder's shapes and axis names.
      dims: E.
      program: jitted `(params, rows [R, L]) -> vectors [R, E]`; R is a multiple of the devices.
    """

    def __init__(self, config: ConfigDict, vocabulary: int, mesh: Mesh | None = None):
        self._mesh = local_mesh() if mesh is None else mesh
        self._sharded = NamedSharding(self._mesh, PartitionSpec(self._mesh.axis_names))
        self.modules, self.program = _compiled(config.model.to_json(), vocabulary, self._mesh)
        self._config = config
        self.dims, self._compute = config.model.embedding, config.model.compute
        longest, budget = indexed_length(config), config.builder.batch_pieces
        widths = {max(8, -(-longest * n // _WIDTHS)) for n in range(1, _WIDTHS + 1)}
        self._widths = sorted(widths)
        on_cpu = jax.default_backend() == "cpu"
        self._budget = min(budget, _MAX_PIECES_ON_CPU) if on_cpu else budget

    def place(self, params: dict[str, Any]) -> dict[str, Any]:
        """Copies params to every device of the mesh, with kernels in the dtype of the products.

        The other methods also take params that are not placed, and copy them in each call.

        Args:
          params: of the embedder, on the host or on devices of the mesh.
        """
        return jax.device_put(self.cast(params), replicated(self._mesh))

    def cast(self, params: dict[str, Any]) -> dict[str, Any]:
        """Casts kernels to the dtype of the products."""
        compute = jnp.dtype(self._compute)
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: leaf.astype(compute) if path[-1].key.endswith("kernel") else leaf,
            params,
        )

    def forward(self, params: dict[str, Any], rows: Rows) -> Float[Array, "R E"]:
        """Traces the embedder inside a larger program."""
        return _forward(self.modules, self._mesh, params, rows)

    def embed(self, params: dict[str, Any], rows: Rows) -> Float32[np.ndarray, "R E"]:
        """Embeds rows [R, L] in one call; each (R, L) is compiled once.

        R is padded to a multiple of the devices.
        """
        count, size = len(rows.ids), self._mesh.size
        padded = padded_indices(count, -(-count // size) * size)
        return np.asarray(self._start(params, Rows(*(part[padded] for part in rows))))[:count]

    def embed_queries(self, params: dict[str, Any], queries: Rows) -> Float32[np.ndarray, "B E"]:
        """Embeds query rows [B, Q] of `EmbedderRows.queries`, at most `MAX_QUERIES` in a call.

        Up to `MAX_QUERIES` rows are one call of that size; more rows are calls of `MAX_QUERIES`.
        """
        count = len(queries.ids)
        if count <= MAX_QUERIES:
            return self.embed(params, queries)
        parts = [
            self.embed(params, Rows(*(part[indices] for part in queries)))[:real]
            for indices, real in fixed_size_batches(count, MAX_QUERIES)
        ]
        return np.concatenate(parts)

    def embed_passages(
        self, params: dict[str, Any], store: PassageStore, ids: Int64[np.ndarray, "N"]
    ) -> Float32[np.ndarray, "N E"]:
        """Embeds passages in batches of similar length, so that short rows carry little padding.

        Args:
          params: of the embedder, best from `place`.
          store: holds the passages.
          ids: of the passages, in any order, repeated or not.

        Returns:
          Their vectors, in the order of `ids`.
        """
        out = np.empty((len(ids), self.dims), np.float32)
        pending: list[tuple[np.ndarray, Float[Array, "R E"]]] = []
        layout = EmbedderRows(self._config, store.vocabulary)
        for members, width in self._batches(layout.passage_lengths(store, ids)):
            padded = members[padded_indices(len(members), self._rows_of(width))]
            rows = layout.passages(store, ids[padded], width)
            pending.append((members, self._start(params, rows)))
            if len(pending) > 1:  # build the next batch on the host while the device computes
                _store(out, *pending.pop(0))
        for members, computed in pending:
            _store(out, members, computed)
        return out

    def _start(self, params: dict[str, Any], rows: Rows) -> Float[Array, "R E"]:
        """Embeds rows [R, L], R a multiple of the devices; the result may not be computed yet."""
        return self.program(params, jax.device_put(rows, self._sharded))

    def _rows_of(self, width: int) -> int:
        """Rows of a batch of this width on all devices."""
        return max(1, self._budget // width) * self._mesh.size

    def _batches(self, lengths: Integer[np.ndarray, "N"]) -> Iterator[tuple[np.ndarray, int]]:
        """Indices of rows of similar length, and their width.

        Rows that do not fill a batch move to the next width, so only the last batch has padding
        rows.
        """
        buckets = np.searchsorted(self._widths, lengths)
        waiting, last = np.empty(0, np.int64), buckets.max(initial=0)
        for bucket, width in enumerate(self._widths[: last + 1]):
            waiting = np.concatenate([waiting, np.flatnonzero(buckets == bucket)])
            size = self._rows_of(width)
            stop = len(waiting) if bucket == last else len(waiting) // size * size
            for start in range(0, stop, size):
                yield waiting[start : min(start + size, stop)], width
            waiting = waiting[stop:]


@functools.lru_cache(maxsize=4)
def _compiled(model_json: str, vocabulary: int, mesh: Mesh) -> tuple[Modules, Program]:
    modules = Modules(ConfigDict(json.loads(model_json)), vocabulary, ("embedder",))
    return modules, Program("embed", functools.partial(_forward, modules, mesh))


def _forward(
    modules: Modules, mesh: Mesh, params: dict[str, Any], rows: Rows
) -> Float[Array, "R E"]:
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return modules.bind({"embedder": params}).embedder.embed(*rows)


def _store(out: np.ndarray, members: np.ndarray, computed: Float[Array, "R E"]) -> None:
    out[members] = np.asarray(computed)[: len(members)]
