"""An evaluation runs the program that `realm compile` lowers, as training is laid out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.parallel.sharding import (
    batch_sharding,
    local_mesh,
    make_mesh,
    packing_groups,
    param_shardings,
)
from realm_jax.planning import programs
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.evaluation import Evaluation, make_evaluation
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.micro_batches import mean_over_parts
from realm_jax.trainer.realm_stage import RealmStage

QUERIES = 13  # two batches of the training size; the second one is filled with other rows
V = 96  # the vocabulary of the synthetic corpus


def config_of(tiny, stage):
    steps = {f"stages__{stage}__steps": 2, "evaluation__queries": QUERIES}
    return tiny_config(tiny.folder, model__layers=1, **steps)


def evaluate_ict(tiny, config, mesh, evaluation_of, folder):
    stage = IctStage(config, tiny.store, packing_groups(mesh, config))
    return stage.evaluate(0, {}, evaluation_of(stage))


def realm_stage(tiny, config, mesh, folder):
    text, groups = MaskedTextSource(tiny.store, tiny.spans, config), packing_groups(mesh, config)
    index = IndexManager(RunDir(folder), config, {tiny.store.corpus_hash}.__contains__, [], set)
    return RealmStage(config, tiny.store, text, text, index, mesh, groups)


def index_of_zeros(tiny, config, stage):
    """A published index whose vectors and params are 0, and the params."""
    shapes = stage.modules.shapes["embedder"]
    params = {"embedder": jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)}
    rows, vectors = np.arange(40), np.zeros((40, config.model.embedding), np.float32)
    of_corpus = {"corpus_hash": tiny.store.corpus_hash}
    parts = (ExactSearcher(vectors), rows, vectors, params["embedder"], "{}", of_corpus)
    return PublishedIndex(0, *parts), params


def evaluate_realm(tiny, config, mesh, evaluation_of, folder):
    stage = realm_stage(tiny, config, mesh, folder)
    index, params = index_of_zeros(tiny, config, stage)
    measured = stage.evaluate_with(index, 0, params, evaluation_of(stage))
    stage.close()
    return measured


@pytest.mark.parametrize(
    ("name", "evaluate"), [("ict", evaluate_ict), ("realm", evaluate_realm)], ids=["ict", "realm"]
)
def test_an_evaluation_has_the_shapes_and_shards_that_were_compiled(tiny, tmp_path, name, evaluate):
    """It once put all queries into one group of the widest rows, on every device."""
    config = config_of(tiny, name)
    mesh, called = make_mesh(config.mesh), []

    def recorded(params, batch):
        called.append(batch)
        return {"loss": np.float32(1.0), "p_null": np.float32(0.0)}, np.float32(1.0)

    def evaluation_of(stage):
        evaluation = Evaluation(config, stage, mesh)
        evaluation.program = recorded
        return evaluation

    evaluate(tiny, config, mesh, evaluation_of, tmp_path)
    compiled = programs.lower(f"{name}/evaluate", config, mesh, local_mesh(), V, len(tiny.store))
    (_, expected), _ = compiled.lowered.args_info
    assert len(called) == 2
    for batch in called:
        assert shapes(batch) == shapes(expected)
        for leaf in jax.tree.leaves(batch):
            assert leaf.sharding.is_equivalent_to(batch_sharding(mesh), leaf.ndim)
            assert {len(shard.data) for shard in leaf.addressable_shards} == {len(leaf) // 8}


def shapes(tree):
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def test_an_evaluation_has_the_micro_batches_of_training(tiny):
    """Only one of them is in memory at a time."""
    config = config_of(tiny, "ict").copy_and_resolve_references()
    with config.unlocked():
        config.optimizer.accumulate_steps, config.stages.ict.batch = 4, 64
    mesh, seen = make_mesh(config.mesh), []

    class Recorded(IctStage):
        def loss(self, networks, batch, key):
            seen.append((batch.ids.shape, key))
            return super().loss(networks, batch, key)

    stage = Recorded(config, tiny.store, packing_groups(mesh, config))
    shardings = param_shardings(mesh, stage.modules.axes, stage.modules.shapes)
    params = jax.tree.map(
        lambda leaf, to: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=to),
        stage.modules.shapes,
        shardings,
    )
    batch = jax.device_put(stage.batch(0), batch_sharding(mesh))
    evaluation = Evaluation(config, stage, mesh)
    evaluation.program.lower(params, batch)
    assert set(seen) == {((8, 2), None)}
    seen.clear()
    make_evaluation(stage, mesh, 1).lower(params, batch)
    assert set(seen) == {((32, 2), None)}


def test_micro_batches_of_rows_that_only_fill_up_do_not_count(tiny, tmp_path):
    config = config_of(tiny, "realm")
    mesh = make_mesh(config.mesh)
    stage = realm_stage(tiny, config, mesh, tmp_path)
    index, params = index_of_zeros(tiny, config, stage)
    rows = np.arange(config.stages.realm.batch)
    batch = next(stage._held_out_batches(index, params, rows, []))
    weights = jnp.asarray(batch.weights)
    assert stage.weight(batch._replace(weights=weights)) > 1
    assert stage.weight(batch._replace(weights=0 * weights)) == 0
    stage.close()

    weights = np.zeros(32, np.float32)
    weights[0] = 2  # of the first part; the others have no weight
    values = {"value": 1 + np.arange(32, dtype=np.float32), "weight": weights}

    def mean(part, _):
        return ((part["value"] * part["weight"]).sum() / part["weight"].sum().clip(1),)

    def weight(part):
        return part["weight"].sum()

    with mesh:
        batch = jax.device_put(values, batch_sharding(mesh))
        whole, split = (mean_over_parts(mean, batch, weight, parts, mesh) for parts in (1, 4))
    np.testing.assert_allclose(np.ravel(jax.tree.leaves(split)), np.ravel(whole))
