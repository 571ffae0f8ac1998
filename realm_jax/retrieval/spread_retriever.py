"""Search of an index whose segments are spread over the hosts of a job."""

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax.data.rows import Rows
from realm_jax.parallel.sharding import gather_to_host, shard_batch
from realm_jax.retrieval import spread_searcher
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.retriever import NO_STEP, Index, StepContext, search


class SpreadRetriever(HostRetriever):
    """Gathers the query vectors of all hosts, which then search their segments together.

    Every process calls it at the same step with its own rows of the batch: one collective gathers
    the queries, one the hits. The hits are those of a `HostRetriever` with all segments.

    Args:
      config: of the run.
      vocabulary: V.
      mesh: of the trainer.
    """

    prefetchable = False  # programs over several processes must start in the same order in each

    def __init__(self, config: ConfigDict, vocabulary: int, mesh: Mesh):
        super().__init__(config, vocabulary)
        self._mesh = mesh

    def hits(
        self, index: Index, queries: Rows, k: int, step: StepContext = NO_STEP
    ) -> Int64[np.ndarray, "R K"]:
        """See `Retriever.hits`.

        Without positions in `step`, every process has the same queries, as in an evaluation.
        """
        if step.positions is None or index.searcher.kind != spread_searcher.KIND:
            return super().hits(index, queries, k)
        mine = self.embed_queries(index, queries)
        everyone = shard_batch(self._mesh, mine, step.positions, step.batch_size)
        return search(index, gather_to_host(self._mesh, everyone), k)[step.positions]
