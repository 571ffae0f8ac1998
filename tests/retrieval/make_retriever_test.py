"""The config chooses the kind of search; all kinds have one interface."""

import pytest
from ml_collections import ConfigDict
from support.tiny_corpus import tiny_config

from realm_jax.errors import RealmError
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import make_mesh
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.make_retriever import make_retriever
from realm_jax.retrieval.mesh_retriever import MeshRetriever
from realm_jax.retrieval.reranking_retriever import RerankingRetriever
from realm_jax.retrieval.spread_retriever import SpreadRetriever


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(ConfigDict({"replica": 1, "data": 2, "fsdp": 2, "model": 2}))


@pytest.mark.parametrize(
    ("changes", "on_mesh", "kind", "prefetchable"),
    [
        ({"search__kind": "scann"}, True, HostRetriever, True),
        ({"search__kind": "mesh"}, True, MeshRetriever, False),
        ({"search__kind": "mesh"}, False, HostRetriever, True),
        ({"search__kind": "exact", "retrieval__rerank": 20}, True, RerankingRetriever, False),
    ],
)
def test_kind_and_prefetching_follow_the_config(tiny, mesh, changes, on_mesh, kind, prefetchable):
    config = tiny_config(tiny.folder, model__layers=1, **changes)
    retriever = make_retriever(config, tiny.store, mesh if on_mesh else None)
    assert type(retriever) is kind
    assert retriever.prefetchable is prefetchable


def test_hosts_with_different_segments_search_together(tiny, mesh, monkeypatch):
    config = tiny_config(tiny.folder, model__layers=1, search__placement="hosts")
    assert type(make_retriever(config, tiny.store, mesh)) is HostRetriever
    monkeypatch.setattr(hosts, "process_count", lambda: 2)
    retriever = make_retriever(config, tiny.store, mesh)
    assert type(retriever) is SpreadRetriever and not retriever.prefetchable
    assert type(make_retriever(config, tiny.store)) is HostRetriever


def test_reranking_on_several_processes_is_refused(tiny, monkeypatch):
    monkeypatch.setattr(hosts, "process_count", lambda: 2)
    config = tiny_config(tiny.folder, model__layers=1, retrieval__rerank=20)
    with pytest.raises(RealmError, match=r"retrieval\.rerank[\s\S]*2 processes"):
        make_retriever(config, tiny.store)
