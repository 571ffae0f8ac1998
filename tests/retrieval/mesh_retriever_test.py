"""Query embedding and mesh search in one program, with published and with current params."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.errors import ConfigError, MismatchError
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import make_mesh, param_shardings, shard_arrays
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.mesh_retriever import MeshRetriever
from realm_jax.retrieval.mesh_searcher import MeshSearcher
from realm_jax.retrieval.retriever import StepContext


def test_mesh_search_finds_the_same_as_host_search_with_the_same_params(tiny):
    config = tiny_config(
        tiny.folder, model__layers=1, search__kind="mesh", retrieval__search_with="fresh"
    )
    mesh = make_mesh(ConfigDict({"replica": 1, "data": 2, "fsdp": 2, "model": 2}))
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    old, fresh = (
        jax.device_get(jax.jit(modules.init)(jax.random.key(n)))["embedder"] for n in (0, 1)
    )
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    rows = np.arange(40)[::-1]
    searched = SimpleNamespace(
        step=4, searcher=MeshSearcher(vectors, mesh), rows=rows, query_params=old
    )
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 8).queries
    retriever = MeshRetriever(config, tiny.store.vocabulary.size, mesh)
    placed = shard_arrays(fresh, param_shardings(mesh, modules.axes, modules.shapes)["embedder"])
    everyone = StepContext(np.arange(8), 8)
    for given, parameters in ((None, old), (placed, fresh)):
        host = SimpleNamespace(
            step=id(parameters), searcher=ExactSearcher(vectors), rows=rows, query_params=parameters
        )
        expected = HostRetriever(config, tiny.store.vocabulary.size).hits(host, queries, 5)
        found = retriever.hits(searched, queries, 5, everyone._replace(params=given))
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(MismatchError, match=r"config\.search\.kind"):
        retriever.hits(host, queries, 5, everyone)


def test_fresh_query_params_need_mesh_search():
    with pytest.raises(ConfigError, match=r"search\.kind"):
        tiny_config(retrieval__search_with="fresh")
