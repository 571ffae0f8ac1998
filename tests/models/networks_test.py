"""Properties of the networks other than equality with BERT, which tests/interop checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.models.modules import Modules
from realm_jax.models.span_head import INVALID_SPAN_SCORE

V = 30
NAMES = ("embedder", "reader", "span_head")


def networks(**changes):
    modules = Modules(tiny_config(**changes).model, V, NAMES)
    return modules, jax.jit(modules.init)(jax.random.key(0))


@pytest.fixture(scope="module")
def bound():
    modules, parameters = networks()
    return modules.bind(parameters)


@pytest.fixture(scope="module")
def embed(bound):
    return jax.jit(bound.embedder.embed)


def rows(length, used, body=4, count=3):
    rng = np.random.default_rng(0)
    ids = np.zeros((count, length), np.int32)
    ids[:, :used] = rng.integers(1, V, (count, used))
    mask = np.broadcast_to(np.arange(length) < used, ids.shape)
    segments = (mask & (np.arange(length) >= body)).astype(np.int32)
    return [jnp.asarray(part) for part in (ids, mask, segments)]


def span_logits(bound, widest):
    ids, mask, segments = rows(12, 9)
    hidden = jax.jit(bound.reader.bert)(ids, mask, segments)
    return jax.jit(bound.span_head.span_logits, static_argnums=3)(hidden, mask, segments, widest)


def test_padding_does_not_change_the_vectors(embed):
    short, long = (embed(*rows(length, 10)) for length in (10, 24))
    np.testing.assert_allclose(short, long, rtol=1e-5, atol=1e-5)


def test_vectors_depend_on_segments_and_token_order(embed):
    ids, mask, segments = rows(10, 10)
    usual = embed(ids, mask, segments)
    assert not np.allclose(usual, embed(ids, mask, 0 * segments), atol=1e-4)
    assert not np.allclose(usual, embed(ids[:, ::-1], mask, segments), atol=1e-4)


def test_vectors_are_layer_normalised_and_not_unit_length(embed):
    vectors = np.asarray(embed(*rows(10, 10)))
    np.testing.assert_allclose(vectors.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose((vectors**2).mean(-1), 1, rtol=1e-4)


def test_logits_are_computed_only_at_the_requested_positions(bound):
    parts = rows(12, 12)
    logits = jax.jit(bound.reader.mlm_logits)
    every = logits(*parts, jnp.tile(jnp.arange(12), (3, 1)))
    some = logits(*parts, jnp.array([[3, 7], [0, 1], [11, 11]]))
    assert every.shape == (3, 12, V)
    for row, places in enumerate([[3, 7], [0, 1], [11, 11]]):
        np.testing.assert_allclose(some[row], every[row, jnp.array(places)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_selected_positions_have_the_same_vectors_and_gradients_as_all_positions(layers):
    modules, parameters = networks(model__layers=layers)
    parts, places = rows(12, 9), jnp.array([[3, 7, 3], [0, 1, 2], [8, 8, 0]])

    def value_and_gradients(hidden):
        of = lambda p: (hidden(modules.bind(p).reader.bert) ** 3).sum()  # noqa: E731
        return jax.jit(jax.value_and_grad(of))(parameters)

    some = value_and_gradients(lambda bert: bert.at(*parts, places))
    among_all = value_and_gradients(
        lambda bert: jnp.take_along_axis(bert(*parts), places[:, :, None], axis=1)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), some, among_all
    )


def test_the_last_layer_needs_few_flops_for_unused_positions():
    modules, parameters = networks(model__layers=1)
    parts, first = rows(24, 24), jnp.zeros((3, 1), jnp.int32)

    def operations(hidden):
        traced = jax.jit(lambda p: hidden(modules.bind(p).reader.bert)).lower(parameters)
        return traced.compile().cost_analysis()["flops"]

    every = operations(lambda bert: bert(*parts))
    assert operations(lambda bert: bert.at(*parts, first)) < 0.6 * every


def test_spans_lie_entirely_inside_the_body(bound):
    """The body has positions 4 to 7: spans of up to 3 tokens begin and end there."""
    scores = span_logits(bound, 3)
    possible = {
        (int(i), int(i + w)) for i, w in np.argwhere(np.asarray(scores[0]) > INVALID_SPAN_SCORE)
    }
    assert possible == {(i, j) for i in range(4, 8) for j in range(i, min(i + 3, 8))}


def test_a_span_score_depends_only_on_its_ends(bound):
    scores = np.asarray(span_logits(bound, 4))[0]
    assert len({scores[4, 0], scores[4, 1], scores[5, 0], scores[4, 2]}) == 4


def test_span_scores_are_those_of_a_perceptron_over_both_ends(bound):
    """ORQA section 4, with the epsilon of the released model, 1e-3."""
    head, (_, mask, segments) = bound.span_head, rows(12, 9)
    hidden = np.random.default_rng(1).normal(size=(3, 12, 16)).astype(np.float32)
    scores = jax.jit(head.span_logits, static_argnums=3)(hidden, mask, segments, 3)
    start, end = np.split(hidden @ np.asarray(head.ends.kernel[...]), 2, axis=-1)  # no bias yet
    features = np.maximum(start[:, 5] + end[:, 7], 0)
    spread = np.sqrt(features.var(-1, keepdims=True) + 1e-3)
    normed = (features - features.mean(-1, keepdims=True)) / spread
    expected = normed @ np.asarray(head.score.kernel[...])  # [3, 1]
    np.testing.assert_allclose(scores[:, 5, 2], expected[:, 0], rtol=1e-4)


def test_matrices_are_drawn_from_a_normal_distribution_cut_at_two_standard_deviations():
    _, parameters = networks(model__init_stddev=0.1)
    bert = parameters["embedder"]["bert"]
    word = np.asarray(bert["word"])
    assert 0.19 < abs(word).max() <= 0.2
    assert abs(word.std() - 0.088) < 0.01  # of a unit normal distribution cut there: 0.88
    assert not np.any(bert["norm"]["bias"]) and np.all(bert["norm"]["scale"][...] == 1)


def test_dropout_needs_a_key_and_is_determined_by_it(embed):
    parts = rows(10, 10)
    still = embed(*parts)
    np.testing.assert_array_equal(still, embed(*parts))
    one, again, two = (embed(*parts, jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, still) and not np.array_equal(one, two)


def test_bfloat16_activations_give_float32_vectors_close_to_the_exact_ones(embed):
    modules, parameters = networks(model__compute="bfloat16")
    half = jax.jit(modules.bind(parameters).embedder.embed)(*rows(10, 10))
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, embed(*rows(10, 10)), atol=0.1)


def test_params_of_a_network_do_not_depend_on_the_other_networks():
    config = tiny_config().model
    alone = Modules(config, V, ("reader",)).init(jax.random.key(0))["reader"]
    _, together = networks()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), alone, together["reader"]
    )


def test_every_param_has_one_axis_name_per_dimension():
    modules, _ = networks()
    axes = jax.tree.leaves(modules.axes, is_leaf=lambda leaf: isinstance(leaf, tuple))
    shapes = jax.tree.leaves(modules.shapes)
    assert [len(names) for names in axes] == [leaf.ndim for leaf in shapes]
