"""Query embedding and search of a mesh index as one program over all devices."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int32, Int64
from ml_collections import ConfigDict

from realm_jax.data.rows import Rows
from realm_jax.errors import MismatchError
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import param_shardings, replicated, shard_arrays, shard_batch
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.mesh_searcher import MeshSearcher, search_on_mesh
from realm_jax.retrieval.retriever import NO_STEP, Index, Retriever, StepContext


class MeshRetriever(Retriever):
    """Embeds and searches a global batch on the mesh, with stale or fresh query parameters.

    Every process calls it at the same step with its own rows of the batch. The vectors of the index
    stay on their devices; the query vectors are replicated.

    Args:
      config: of the run.
      vocabulary: V.
      mesh: of the trainer, and of the index.

    Attributes:
      encoder: embeds the queries.
      program: (params, vectors, queries) -> index rows [B, K].
    """

    prefetchable = False  # programs over several processes must start in the same order in each

    def __init__(self, config: ConfigDict, vocabulary: int, mesh: Mesh):
        super().__init__(config)
        self.encoder = Encoder(config, vocabulary, mesh)
        self._host = HostRetriever(config, vocabulary)
        self._mesh, self._fresh = mesh, config.retrieval.search_with == "fresh"
        self._placed: tuple[int, Any] = (-1, None)
        self.program = Program(
            "search",
            self._embed_and_search,
            static_argnames=("k", "size"),
            out_shardings=replicated(mesh),
        )

    def _embed_and_search(
        self, params: Any, vectors: Float[Array, "N E"], queries: Rows, k: int, size: int
    ) -> Int32[Array, "B K"]:
        embedded = self.encoder.forward(params, queries)
        everywhere = jax.lax.with_sharding_constraint(embedded, replicated(self._mesh))
        return search_on_mesh(vectors, everywhere, k, size=size, mesh=self._mesh)[0]

    def hits(
        self, index: Index, queries: Rows, k: int, step: StepContext = NO_STEP
    ) -> Int64[np.ndarray, "R K"]:
        """See `Retriever.hits`.

        Args:
          index: with a mesh searcher on the mesh of this retriever.
          queries: [R, Q], this process's rows of the batch.
          k: cut to the size of the index.
          step: its positions are the rows that `queries` are. Without positions, every process
            has the same queries, as in an evaluation, and embeds them with the parameters of the
            index. Its params, on the mesh, are used if `retrieval.search_with` is `fresh`.

        Raises:
          MismatchError: the index has another kind of searcher.
        """
        if step.positions is None:
            return self._host.hits(index, queries, k)
        searcher = index.searcher
        if not isinstance(searcher, MeshSearcher):
            raise MismatchError(
                "the index was not built for the device mesh",
                where=f"index of step {index.step}",
                expected="kind mesh (config.search.kind)",
                found=f"kind {searcher.kind}",
                fix="let the index builder build it again, or set config.search.kind back",
            )
        fresh = step.params if self._fresh else None
        used = self._published_params(index) if fresh is None else fresh
        everyone = shard_batch(self._mesh, queries, step.positions, step.batch_size)
        k = min(k, searcher.size)
        found = self.program(used, searcher.vectors, everyone, k=k, size=searcher.size)
        return index.rows[jax.device_get(found)[step.positions]]

    def _published_params(self, index: Index) -> Any:
        """The query parameters of `index`, on the mesh."""
        placed = self._placed  # read once: another thread may search another index meanwhile
        if placed[0] != index.step:
            modules = self.encoder.modules
            to = param_shardings(self._mesh, modules.axes, modules.shapes)["embedder"]
            placed = self._placed = (index.step, shard_arrays(index.query_params, to))
        return placed[1]
