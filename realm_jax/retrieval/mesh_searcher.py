"""Exact search on the device mesh: rows spread over all devices, scored block by block."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Float32, Int32

from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.exact_searcher import VECTORS, load_vectors
from realm_jax.retrieval.searcher import check_queries, read_description, write_description

BLOCK = 8192  # rows that a device scores at a time
BLOCK_RECALL = 0.99  # of `approx_max_k` in each block, where the hardware has it


class MeshSearcher:
    """Holds the vectors on the devices; `search_on_mesh` takes `vectors` inside other programs.

    Exact but for what bfloat16 rounds, and on TPUs for a hundredth of each block's best.

    Args:
      vectors: [N, E] float32, perhaps memory-mapped; each host reads only its devices' rows.
      mesh: the devices; all axes share the rows. None: one axis over all devices.
      dtype: of the vectors on the devices, float32 or bfloat16. Scores are float32 either way.
      mean: taken off the vectors on their way to the devices; None: nothing.
    """

    kind = "mesh"

    def __init__(
        self,
        vectors: Float32[np.ndarray, "N E"],
        mesh: Mesh | None = None,
        dtype: str = "float32",
        mean: Mean | None = None,
    ):
        self.mesh = _mesh_of_all_devices() if mesh is None else mesh
        self.size, self.dims = vectors.shape
        self.mean = mean or Mean(np.zeros(self.dims, np.float32))
        self.vectors = _place(vectors, self.mesh, jnp.dtype(dtype), self.mean)
        self.bytes = self.vectors.nbytes
        self._search = jax.jit(
            partial(search_on_mesh, size=self.size, mesh=self.mesh), static_argnames="k"
        )

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; ties go to the lower row. Compiles once per (B, k)."""
        check_queries(self, queries, k)
        rows, scores = jax.device_get(self._search(self.vectors, queries, k=k))
        return rows, self.mean.true_scores(queries, scores)

    def widen(self) -> bool:
        """False: all rows are looked at."""
        return False

    def save(self, folder: Path) -> None:
        """Writes what it holds as float32, without padding. One process must hold all of it."""
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
        """On all devices; `options` is `config.search`."""
        return cls(vectors, dtype=options.dtype, mean=Mean.of(vectors))

    @classmethod
    def load(cls, folder: Path, mesh: Mesh | None = None) -> "MeshSearcher":
        """Spreads saved vectors over `mesh`, which need not be the one they were saved from."""
        searcher = cls(load_vectors(folder), mesh, read_description(folder).get("dtype", "float32"))
        searcher.mean = Mean.load(folder, searcher.dims)  # which the saved vectors are without
        return searcher


def _mesh_of_all_devices() -> Mesh:
    return jax.make_mesh((jax.device_count(),), ("rows",), axis_types=(AxisType.Auto,))


def search_on_mesh(
    vectors: Float[Array, "N E"],
    queries: Float[Array, "B E"],
    k: int,
    *,
    size: int,
    mesh: Mesh,
) -> tuple[Int32[Array, "B K"], Float32[Array, "B K"]]:
    """The `k` best rows and scores, best first, on every device; may be traced in a larger program.

    Scores are those of `vectors`, which a searcher has less their mean.

    Args:
      vectors: padded rows, laid over all axes of `mesh` (`MeshSearcher.vectors`).
      queries: the same on every device.
      k: at most `size`.
      size: rows before padding; later ones are never returned.
      mesh: the mesh that holds `vectors`.
    """
    axes = mesh.axis_names
    approximate = mesh.devices.flat[0].platform == "tpu"  # elsewhere it is a sort of everything
    local = partial(_search_device, k=k, size=size, axes=axes, approximate=approximate)
    return jax.shard_map(local, mesh=mesh, in_specs=(P(axes), P()), out_specs=P(), check_vma=False)(
        vectors, queries
    )


def _search_device(vectors, queries, *, k, size, axes, approximate):
    """Blocked scan over this device's rows, then a merge of every device's best."""
    local, dims = vectors.shape
    block = min(BLOCK, local)
    first = jax.lax.axis_index(axes) * local

    def scan_block(best, start):
        # The last block may overlap the one before; its repeated rows are masked.
        begin = jnp.minimum(start, local - block)
        scores = jax.lax.dot_general(
            queries.astype(vectors.dtype),
            jax.lax.dynamic_slice(vectors, (begin, 0), (block, dims)),
            (((1,), (1,)), ((), ())),
            precision=jax.lax.Precision.HIGHEST,  # accelerators would round float32 otherwise
            preferred_element_type=jnp.float32,
        )
        place = begin + jnp.arange(block, dtype=jnp.int32)
        valid = (place >= start) & (first + place < size)
        scores = jnp.where(valid[None], scores, -jnp.inf)
        rows = jnp.broadcast_to(first + place, scores.shape)
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
    """Keeps the `k` best of both; `top_k` prefers the left among equals, where lower rows are."""
    rows, scores = (jnp.concatenate(pair, axis=1) for pair in zip(best, new, strict=True))
    scores, order = jax.lax.top_k(scores, k)
    return jnp.take_along_axis(rows, order, axis=1), scores


def _place(vectors: np.ndarray, mesh: Mesh, dtype: jnp.dtype, mean: Mean) -> Float[Array, "N E"]:
    """Pads the rows to a multiple of the devices and lays them over all axes of the mesh."""
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
    """The first `size` rows on this process's devices, in order, some at a time."""
    shards = sorted(vectors.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    for shard in shards:
        rows, first = np.asarray(shard.data), shard.index[0].start or 0
        for start in range(0, min(len(rows), size - first), BLOCK):
            yield rows[start : min(start + BLOCK, size - first)]
