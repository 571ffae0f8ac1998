"""Query embedding and search of a mesh index as one program over all devices."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int32, Int64
from ml_collections import ConfigDict

from realm_jax.data.rows import Rows
from realm_jax.errors import MismatchError
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import param_shardings, replicated, shard_arrays, shard_batch
from realm_jax.retrieval.mesh_searcher import MeshSearcher, search_on_mesh
from realm_jax.retrieval.retriever import Index


class MeshRetriever:
    """Searches with the embedder of the index, or with that of the very step.

    Every process calls it at the same step with its own rows of the batch; rows of the index stay
    where they are, queries travel.
    """

    def __init__(self, config: ConfigDict, vocabulary: int, mesh: Mesh):
        self._modules = Modules(config.model, vocabulary, ("embedder",))
        self._mesh = mesh
        self._placed: tuple[int, Any] = (-1, None)
        self._search = jax.jit(
            self._embed_and_search, static_argnames=("k", "size"), out_shardings=replicated(mesh)
        )

    def _embed_and_search(
        self, parameters: Any, vectors: Float[Array, "N E"], queries: Rows, k: int, size: int
    ) -> Int32[Array, "B K"]:
        embedder = self._modules.bind({"embedder": parameters}).embedder
        asked = jax.lax.with_sharding_constraint(embedder.embed(*queries), replicated(self._mesh))
        return search_on_mesh(vectors, asked, k, size=size, mesh=self._mesh)[0]

    def hits(
        self,
        index: Index,
        queries: Rows,
        places: Int64[np.ndarray, "R"],
        batch: int,
        k: int,
        fresh: Any = None,
    ) -> Int64[np.ndarray, "R K"]:
        """Passage ids of the k best for this process's queries, best first.

        Args:
          index: with a mesh searcher on the mesh of this retriever.
          queries: [R, Q], this process's rows of the batch.
          places: of those rows in the batch of all processes.
          batch: B, queries of all processes.
          k: cut to the size of the index.
          fresh: embedder parameters on the mesh to search with; None takes those of the index.

        Raises:
          MismatchError: the index has another searcher.
        """
        searcher = index.searcher
        if not isinstance(searcher, MeshSearcher):
            raise MismatchError(
                "this index is not one for the device mesh",
                where=f"index of step {index.step}",
                expected="kind mesh (config.search.kind)",
                found=f"kind {searcher.kind}",
                fix="have the index builder build it again, or set config.search.kind back",
            )
        parameters = self._of_index(index) if fresh is None else fresh
        everyone = shard_batch(self._mesh, queries, places, batch)
        k = min(k, searcher.size)
        found = self._search(parameters, searcher.vectors, everyone, k=k, size=searcher.size)
        return index.rows[jax.device_get(found)[places]]

    def _of_index(self, index: Index) -> Any:
        placed = self._placed  # read once: another thread may search another index meanwhile
        if placed[0] != index.step:
            modules = self._modules
            to = param_shardings(self._mesh, modules.axes, modules.shapes)["embedder"]
            placed = self._placed = (index.step, shard_arrays(index.query_params, to))
        return placed[1]
