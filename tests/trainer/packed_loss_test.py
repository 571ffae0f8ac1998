"""Packed rows have the same loss and gradients as padded rows."""

import jax
import numpy as np
import pytest
from support.padded import (
    padded_batch,
    padded_ict_loss,
    padded_reader_loss,
    padded_realm_loss,
)
from support.tiny_corpus import tiny_config

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.reader_stage import ReaderStage
from realm_jax.trainer.realm_stage import RealmStage

SIZE = 8


@pytest.fixture
def config(tiny):
    changes = {"model__dropout": 0.0, "model__init_stddev": 0.3, "stages__realm__steps": 2}
    changes |= {"model__layers": 1, "lengths__fitted": True}
    return tiny_config(tiny.folder, masking__scheme="random_token", masking__rate=0.15, **changes)


@pytest.fixture
def hits():
    rng = np.random.default_rng(0)
    return rng.permuted(np.tile(np.arange(40), (SIZE, 1)), axis=1)[:, :6]


def index_of(tiny, config):
    known = {tiny.store.corpus_hash}
    return IndexManager(RunDir(tiny.folder), config, known.__contains__, [], set)


def loss_and_gradients(stage, loss, batch):
    params = jax.jit(stage.modules.init)(jax.random.key(1))
    function = jax.value_and_grad(lambda p, b: loss(stage.modules.bind(p), b), has_aux=True)
    return jax.device_get(jax.jit(function)(params, batch))


def assert_same(found, expected):
    (loss, metrics), gradients = found
    (other_loss, other_metrics), other_gradients = expected
    np.testing.assert_allclose(loss, other_loss, rtol=1e-5)
    for name, value in other_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(1, abs(b).max())),
        gradients,
        other_gradients,
    )


@pytest.mark.parametrize(
    ("marginal", "groups", "usual", "layers"),
    [
        ("paper", 2, True, 2),
        pytest.param("released", 4, True, 1, marks=pytest.mark.slow),
        pytest.param("paper", 1, False, 1, marks=pytest.mark.slow),
    ],
)
def test_packed_realm_has_the_loss_and_gradients_of_padded_rows(
    tiny, config, hits, marginal, groups, usual, layers
):
    config.model.layers = layers
    config.stages.realm.marginal = marginal
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    index = index_of(tiny, config)
    stage = RealmStage(config, tiny.store, text, text, index, groups=groups)
    drawn = text.batch(0, SIZE)
    assert len(set(drawn.weights.sum(1))) > 1
    packed = stage.with_candidates(drawn, hits, SIZE // groups, stage._usual if usual else None)
    assert len(packed.embedded.starts) == groups
    found = loss_and_gradients(stage, lambda n, b: stage.loss(n, b, None), packed)
    padded = padded_batch(config, tiny.store, drawn, hits)
    expected = loss_and_gradients(stage, lambda n, b: padded_realm_loss(n, b, marginal), padded)
    assert_same(found, expected)
    read = (padded.text.queries, padded.passages, padded.joint)
    real = sum(rows.mask.sum() for rows in read) + 3 * groups  # null passages have 3 tokens
    assert found[0][1]["real_pieces"] * SIZE == pytest.approx(real)
    if usual:
        assert found[0][1]["padding_share"] < 0.25 < 1 - np.mean([r.mask.mean() for r in read])


@pytest.mark.slow
@pytest.mark.parametrize(
    "found", [pytest.param(6, id="all candidates"), pytest.param(1, id="one passage found")]
)
def test_the_distance_penalty_does_not_depend_on_the_number_of_groups(tiny, config, hits, found):
    config.stages.realm.distance_penalty = 3.0
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    drawn, index = text.batch(0, SIZE), index_of(tiny, config)

    def penalised(groups):
        stage = RealmStage(config, tiny.store, text, text, index, groups=groups)
        before = stage.modules.bind(jax.jit(stage.modules.init)(jax.random.key(2)))
        packed = stage.with_candidates(drawn, hits[:, :found], SIZE // groups)

        def loss(networks, batch):
            networks.reference = before
            return stage.loss(networks, batch, None)

        found_loss, gradients = loss_and_gradients(stage, loss, packed)
        of_packing = ("real_pieces", "padding_share")
        metrics = {k: v for k, v in found_loss[1].items() if k not in of_packing}
        return (found_loss[0], metrics), gradients

    one_group = penalised(1)
    assert one_group[0][1]["distance"] > 0.1
    assert_same(penalised(8), one_group)


@pytest.mark.parametrize("groups", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_packed_ict_has_the_loss_and_gradients_of_padded_rows(tiny, config, groups):
    stage = IctStage(config, tiny.store, groups)
    found = loss_and_gradients(stage, lambda n, b: stage.loss(n, b, None), stage.batch(0))
    expected = loss_and_gradients(stage, padded_ict_loss, stage._source.batch(0, SIZE))
    assert_same(found, expected)


@pytest.mark.parametrize("groups", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_packed_reader_has_the_loss_and_gradients_of_padded_rows(tiny, config, groups):
    """Rows with hidden [MASK] tokens are packed with all tokens behind these."""
    config.stages.reader.update(steps=4, copying_share=0.0, hidden_mask_share=0.5)
    config.masking.scheme = "salient_span"
    stage = ReaderStage(
        config, tiny.store, MaskedTextSource(tiny.store, tiny.spans, config), groups
    )
    packed, padded = stage.batch(0), stage._source.batch(0, SIZE)
    assert len(packed.rows.starts) == groups
    counted = padded.text.weights.any(1) | padded.one_span
    hidden = (padded.joint.ids == tiny.store.vocabulary.mask) & ~padded.joint.mask
    assert hidden.any() and (padded.gold.any((1, 2)) & counted).any()
    found = loss_and_gradients(stage, lambda n, b: stage.loss(n, b, None), packed)
    widest = config.lengths.answer
    expected = loss_and_gradients(stage, lambda n, b: padded_reader_loss(n, b, widest), padded)
    assert_same(found, expected)
    assert found[0][1]["padding_share"] < 1 - padded.joint.mask.mean()


@pytest.mark.parametrize(
    ("fitted", "of_realm", "of_ict", "of_reader"), [(True, 3, 3, 2), (False, 1, 1, 1)]
)
def test_the_number_of_batch_shapes_is_that_of_the_config(
    tiny, config, fitted, of_realm, of_ict, of_reader
):
    config.lengths.fitted = fitted
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    realm = RealmStage(config, tiny.store, text, text, index_of(tiny, config))
    ict, reader = IctStage(config, tiny.store), ReaderStage(config, tiny.store, text)
    assert [len(kind) for kind in realm._usual] == [of_realm] * 3
    assert (len(ict._buckets), len(reader._buckets)) == (of_ict, of_reader)
