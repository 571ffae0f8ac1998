"""The retriever that a config asks for."""

from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.errors import RealmError
from realm_jax.parallel import hosts
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.mesh_retriever import MeshRetriever
from realm_jax.retrieval.placement import is_spread
from realm_jax.retrieval.reranking_retriever import RerankingRetriever
from realm_jax.retrieval.retriever import Retriever
from realm_jax.retrieval.spread_retriever import SpreadRetriever


def make_retriever(config: ConfigDict, store: PassageStore, mesh: Mesh | None = None) -> Retriever:
    """Chooses the retriever by `config.search` and `config.retrieval`.

    Args:
      config: of the run.
      store: the knowledge corpus.
      mesh: of the trainer; without one, mesh indexes are searched from the host.

    Raises:
      RealmError: re-ranking on several processes.
    """
    if config.retrieval.rerank:
        _require_one_process(config)
        return RerankingRetriever(config, store, mesh)
    if config.search.kind == "mesh" and mesh is not None:
        return MeshRetriever(config, store.vocabulary.size, mesh)
    if mesh is not None and is_spread(config.search):
        return SpreadRetriever(config, store.vocabulary.size, mesh)
    return HostRetriever(config, store.vocabulary.size)


def _require_one_process(config: ConfigDict) -> None:
    if hosts.process_count() > 1:
        raise RealmError(
            "re-ranking works on one process only",
            where="config.retrieval.rerank",
            expected="0, or one process",
            found=f"{config.retrieval.rerank} on {hosts.process_count()} processes",
            fix="--config.retrieval.rerank=0; for scores of the current embedder also "
            "--config.search.kind=mesh --config.retrieval.search_with=fresh",
        )
