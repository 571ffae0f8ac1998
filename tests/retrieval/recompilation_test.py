"""A swap to an index of the same size compiles nothing: all devices would wait for it."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support.finished_run import random_params
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.parallel.sharding import make_mesh
from realm_jax.retrieval.mesh_retriever import MeshRetriever
from realm_jax.retrieval.mesh_searcher import MeshSearcher, search_program
from realm_jax.retrieval.retriever import StepContext

K, DIMS = 5, 12
EVENT = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compiled():
    """A list that grows by one with each program that XLA compiles."""
    events = []

    def listen(event, duration, **_):
        if event == EVENT:
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    search_program.cache_clear()
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def vectors(seed, size=60):
    return np.random.default_rng(seed).normal(size=(size, DIMS)).astype(np.float32)


def search(searcher, seed=9):
    return searcher.search(vectors(seed)[:4], K)[0]


def test_an_index_of_the_same_size_compiles_nothing(compiled, tmp_path):
    mesh = make_mesh(tiny_config(mesh__fsdp=2).mesh)
    search(MeshSearcher(vectors(0), mesh))
    assert compiled
    compiled.clear()
    second = MeshSearcher(vectors(1), make_mesh(tiny_config(mesh__fsdp=2).mesh))
    found = search(second)
    second.save(tmp_path)
    loaded = MeshSearcher.load(tmp_path, mesh)
    np.testing.assert_array_equal(search(loaded), found)
    assert compiled == []
    expected = np.argsort(-vectors(9)[:4] @ vectors(1).T, axis=1)[:, :K]
    np.testing.assert_array_equal(found, expected)


def test_an_index_of_another_size_is_compiled(compiled):
    search(MeshSearcher(vectors(0)))
    compiled.clear()
    search(MeshSearcher(vectors(0, size=61)))
    assert len(compiled) == 1


def test_training_steps_after_a_swap_compile_nothing(compiled, tiny):
    config = tiny_config(tiny.folder, model__layers=1, model__embedding=DIMS, search__kind="mesh")
    mesh, size = make_mesh(tiny_config(mesh__fsdp=2).mesh), tiny.store.vocabulary.size
    queries = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 8).queries
    retriever, everyone = MeshRetriever(config, size, mesh), StepContext(np.arange(8), 8)
    params = random_params(config, size)["embedder"]
    for step in (0, 4):
        searcher, rows = MeshSearcher(vectors(step), mesh), np.arange(60)
        index = SimpleNamespace(step=step, searcher=searcher, rows=rows, query_params=params)
        compiled.clear()
        retriever.hits(index, queries, K, everyone)
        assert bool(compiled) == (step == 0)
