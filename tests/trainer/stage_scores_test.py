"""Scores of the stages `ict` and `realm` have the temperature and the null score of the config."""

import jax
import jax.numpy as jnp
import numpy as np
from support.tiny_corpus import tiny_config

from realm_jax import losses
from realm_jax.data.pretraining import PretrainingBatch
from realm_jax.models.modules import Modules
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.realm_stage import _scores

TEMPERATURE, NULL = 0.5, 3.0


def config_of(tiny):
    null = {"model__null_score": "fixed", "model__null_value": NULL}
    changes = {"model__temperature": TEMPERATURE, "model__init_stddev": 0.3, **null}
    return tiny_config(tiny.folder, model__layers=1, **changes)


def test_scores_of_stage_realm(tiny):
    config = config_of(tiny)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    networks = modules.bind(modules.init(jax.random.key(0)))
    queries, null, found = (
        np.random.default_rng(n).normal(size=(2, n, 8)).astype(np.float32) for n in (3, 1, 6)
    )
    valid = np.ones((2, 3, 3), bool)  # two groups of three queries with two passages each
    batch = PretrainingBatch(*[None] * 7, valid=valid)
    scores = _scores(networks, batch, jnp.concatenate([queries, null, found], axis=1))
    products = np.einsum("gbe,gbke->gbk", queries, found.reshape(2, 3, 2, 8))
    np.testing.assert_allclose(scores[:, :, 1:], products / TEMPERATURE, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores[:, :, 0], NULL / TEMPERATURE, rtol=1e-6)


def test_scores_of_stage_ict(tiny):
    stage = IctStage(config_of(tiny), tiny.store)

    @jax.jit
    def both(params, batch, pairs):
        networks = stage.modules.bind(params)
        queries, passages = (networks.embedder.embed(*rows) for rows in pairs[:2])
        expected, _ = losses.ict_loss(queries / TEMPERATURE, passages, pairs.ids)
        return stage.loss(networks, batch, None)[0], expected

    pairs = stage._source.batch(0, stage.settings.batch)
    params = jax.jit(stage.modules.init)(jax.random.key(0))
    np.testing.assert_allclose(*both(params, stage.batch(0), pairs), rtol=1e-4)
