"""Exact search on the device mesh: rows sharded over all devices and scored in blocks."""

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Float32, Int32

from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import local_mesh
from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.exact_searcher import VECTORS, load_vectors
from realm_jax.retrieval.searcher import check_queries
from realm_jax.retrieval.searcher_files import read_description, write_description

BLOCK = 8192  # rows that a device scores at a time
BLOCK_RECALL = 0.99  # of `approx_max_k` in each block, on TPU


class MeshSearcher:
    """Keeps the vectors on the devices; `search_on_mesh` searches them inside larger programs.

    The search is exact except for bfloat16 rounding and, on TPU, the recall of `approx_max_k`
    (`BLOCK_RECALL`).

    Args:
      vectors: [N, E] float32; may be memory-mapped. Each host reads only the rows of its devices.
      mesh: rows are sharded over all its axes; None: all devices of this process.
      dtype: of the vectors on the devices, float32 or bfloat16; scores are float32.
      mean: subtracted from the vectors before they are cast; None: zero.

    Attributes:
      vectors: [N padded to a multiple of the devices, E], sharded.
    """

    kind = "mesh"

    def __init__(
        self,
        vectors: Float32[np.ndarray, "N E"],
        mesh: Mesh | None = None,
        dtype: str = "float32",
        mean: Mean | None = None,
    ):
        self.mesh = local_mesh() if mesh is None else mesh
        self.size, self.dims = vectors.shape
        self.mean = mean or Mean(np.zeros(self.dims, np.float32))
        self.vectors = _shard_rows(vectors, self.mesh, jnp.dtype(dtype), self.mean)
        self.bytes = self.vectors.nbytes
        self._search = search_program(self.size, self.mesh)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; compiled once per (B, k)."""
        check_queries(self, queries, k)
        rows, scores = jax.device_get(self._search(self.vectors, queries, k=k))
        return rows, self.mean.add_to_scores(queries, scores)

    def widen(self) -> bool:
        """Returns False: all rows are scored already."""
        return False

    def save(self, folder: Path) -> None:
        """Writes the centred vectors as float32 without padding; needs all rows in one process."""
        shape = (self.size, self.dims)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        with (folder / VECTORS).open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for rows in _blocks(self.vectors, self.size):
                rows.astype("<f4", copy=False).tofile(file)
        self.mean.save(folder)
        write_description(folder, self, dtype=str(self.vectors.dtype))

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
    ) -> "MeshSearcher":
        """Puts the centred vectors on all devices; `options` is `config.search`."""
        return cls(vectors, dtype=options.dtype, mean=Mean.of(vectors))

    @classmethod
    def load(cls, folder: Path, mesh: Mesh | None = None) -> "MeshSearcher":
        """Shards saved vectors over `mesh`, which may differ from the mesh they were saved from."""
        searcher = cls(load_vectors(folder), mesh, read_description(folder).get("dtype", "float32"))
        searcher.mean = Mean.load(folder, searcher.dims)  # the saved vectors are centred
        return searcher


@lru_cache(maxsize=4)
def search_program(size: int, mesh: Mesh) -> Program:
    """The program (vectors, queries, k) -> rows and scores, compiled once for all refreshes."""
    return Program(
        "search/vectors", partial(search_on_mesh, size=size, mesh=mesh), static_argnames="k"
    )


def search_on_mesh(
    vectors: Float[Array, "N E"],
    queries: Float[Array, "B E"],
    k: int,
    *,
    size: int,
    mesh: Mesh,
) -> tuple[Int32[Array, "B K"], Float32[Array, "B K"]]:
    """Searches inside a traced program.

    Args:
      vectors: `MeshSearcher.vectors`.
      queries: [B, E], replicated.
      k: at most `size`.
      size: N, rows without padding.
      mesh: of `vectors`.

    Returns:
      Index rows and inner products with the centred vectors, best first, replicated. In a tie, the
      lower row is first.
    """
    axes = mesh.axis_names
    approximate = mesh.devices.flat[0].platform == "tpu"  # elsewhere it sorts the block
    local = partial(_search_device, k=k, size=size, axes=axes, approximate=approximate)
    return jax.shard_map(local, mesh=mesh, in_specs=(P(axes), P()), out_specs=P(), check_vma=False)(
        vectors, queries
    )


def _search_device(vectors, queries, *, k, size, axes, approximate):
    """Scans the rows of this device in blocks, then merges the best hits of all devices."""
    local, dims = vectors.shape
    block = min(BLOCK, local)
    first = jax.lax.axis_index(axes) * local

    def scan_block(best, start):
        # The last block may overlap the one before it; repeated rows are masked.
        begin = jnp.minimum(start, local - block)
        scores = jax.lax.dot_general(
            queries.astype(vectors.dtype),
            jax.lax.dynamic_slice(vectors, (begin, 0), (block, dims)),
            (((1,), (1,)), ((), ())),
            precision=jax.lax.Precision.HIGHEST,  # TPUs round float32 to bfloat16 by default
            preferred_element_type=jnp.float32,
        )
        position = begin + jnp.arange(block, dtype=jnp.int32)
        valid = (position >= start) & (first + position < size)
        scores = jnp.where(valid[None], scores, -jnp.inf)
        rows = jnp.broadcast_to(first + position, scores.shape)
        if approximate and k < block:
            scores, found = jax.lax.approx_max_k(scores, k, recall_target=BLOCK_RECALL)
            rows = jnp.take_along_axis(rows, found, axis=1)
        return _merge(best, (rows, scores), k), None

    empty = (
        jnp.zeros((len(queries), k), jnp.int32),
        jnp.full((len(queries), k), -jnp.inf, jnp.float32),
    )
    starts = jnp.arange(0, local, block, dtype=jnp.int32)
    (rows, scores), _ = jax.lax.scan(scan_block, empty, starts)
    rows, scores = (jax.lax.all_gather(x, axes, axis=1, tiled=True) for x in (rows, scores))
    scores, order = jax.lax.top_k(scores, k)
    return jnp.take_along_axis(rows, order, axis=1), scores


def _merge(best, new, k):
    """Keeps the `k` best of both; in a tie `top_k` takes the left one, which has the lower row."""
    rows, scores = (jnp.concatenate(pair, axis=1) for pair in zip(best, new, strict=True))
    scores, order = jax.lax.top_k(scores, k)
    return jnp.take_along_axis(rows, order, axis=1), scores


def _shard_rows(
    vectors: np.ndarray, mesh: Mesh, dtype: jnp.dtype, mean: Mean
) -> Float[Array, "N E"]:
    """Centres and casts the rows, pads them to a multiple of the devices and shards them."""
    size, dims = vectors.shape
    padded = -(-size // mesh.size) * mesh.size

    def rows_of_device(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        start, stop, _ = index[0].indices(padded)
        rows = np.zeros((stop - start, dims), dtype)
        for first in range(start, min(stop, size), BLOCK):
            last = min(first + BLOCK, stop, size)
            rows[first - start : last - start] = vectors[first:last] - mean.vector
        return rows

    sharding = NamedSharding(mesh, P(mesh.axis_names))
    return jax.make_array_from_callback((padded, dims), sharding, rows_of_device)


def _blocks(vectors: Float[Array, "N E"], size: int) -> Iterator[np.ndarray]:
    """Yields the rows before `size` on the devices of this process, in order, in blocks."""
    shards = sorted(vectors.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    for shard in shards:
        rows, first = np.asarray(shard.data), shard.index[0].start or 0
        for start in range(0, min(len(rows), size - first), BLOCK):
            yield rows[start : min(start + BLOCK, size - first)]
