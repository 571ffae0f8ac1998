"""FLOPs computed from the config against hand-computed values and XLA's cost analysis."""

import jax
import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.models.modules import Modules
from realm_jax.planning.flops import embed_flops, encoder_flops, recomputed_flops, train_flops

VOCABULARY = 30_522


def test_flops_of_one_row_of_bert_base():
    model = config_lib.default().model
    by_hand = 12 * (4 * 2 * 384 * 768**2 + 2 * 2 * 384**2 * 768 + 2 * 2 * 384 * 768 * 3072)
    assert encoder_flops(model, 1, 384) == by_hand


def test_flops_of_a_refresh_and_a_step_at_the_papers_sizes():
    config = config_lib.default()
    # The expected 0.70 EFLOPs and 1.54 PFLOPs include the whole last layer, and rows of full length
    # for the null passage.
    refresh = embed_flops(config, 13_353_718, 288) + 13_353_718 * unused_flops(config.model, 288, 1)
    step = train_flops(config, "realm", VOCABULARY)
    full, short = (
        encoder_flops(config.model, 512, 384),
        encoder_flops(config.model, 512, 97, config.lengths.masks),
    )
    layers = 512 * (7 * unused_flops(config.model, 288, 1) + unused_flops(config.model, 96, 1))
    layers += 512 * 7 * unused_flops(config.model, 384, config.lengths.masks) + full - short
    assert refresh == pytest.approx(0.70e18, rel=0.02)
    assert step + 3 * layers == pytest.approx(1.54e15, rel=0.06)


def unused_flops(model, length, wanted):
    """FLOPs that the last layer saves for a row."""
    by_hand = 2 * 768**2 + 2 * 2 * 768 * 3072
    assert encoder_flops(model, 1, length) - encoder_flops(model, 1, length, wanted) == (
        (length - wanted) * by_hand
    )
    return (length - wanted) * by_hand


def test_a_step_of_ict_scores_every_query_with_every_passage_of_the_batch():
    config = config_lib.default()
    layers = 4096 * sum(encoder_flops(config.model, 1, length, 1) for length in (96, 288))
    heads = 2 * 4096 * 2 * (768**2 + 768 * 128) + 2 * 4096**2 * 128
    assert train_flops(config, "ict", VOCABULARY) == pytest.approx(3 * (layers + heads))


def test_remat_costs_one_more_forward_pass_of_the_layers():
    config = config_lib.default()
    plain = train_flops(config, "ict", VOCABULARY)
    config.model.remat = "full"
    layers = 4096 * sum(encoder_flops(config.model, 1, length, 1) for length in (96, 288))
    assert train_flops(config, "ict", VOCABULARY) - plain == layers
    assert recomputed_flops(config, "ict", VOCABULARY) == layers
    config.model.remat = "attention"
    scores = sum(12 * (6 * length * 768**2 + 2 * length**2 * 768) for length in (96, 288))
    assert recomputed_flops(config, "ict", VOCABULARY) == 4096 * scores


def test_pooling_over_all_tokens_needs_the_whole_last_layer():
    config = config_lib.default()
    config.model.pooling = "mean"  # without a pooler; the projection stays
    whole = encoder_flops(config.model, 8, 288) + 2 * 8 * 768 * 128
    assert embed_flops(config, 8, 288) == whole


@pytest.mark.parametrize(
    ("stage", "queries", "passages"), [("realm", 512, 512 * 7), ("ict", 4096, 4096)]
)
def test_a_distance_penalty_embeds_queries_and_passages_once_more(stage, queries, passages):
    config = config_lib.default()
    plain = train_flops(config, stage, VOCABULARY)
    config.stages[stage].distance_penalty = 1.0
    more = embed_flops(config, queries, 96) + embed_flops(config, passages, 288)
    assert train_flops(config, stage, VOCABULARY) - plain == pytest.approx(more)


def test_xla_counts_the_same_products():
    config = tiny_config(model__hidden=64, model__mlp=256, model__dropout=0.0, model__layers=1)
    modules = Modules(config.model, 96, ("embedder",))
    rows = [jax.ShapeDtypeStruct((8, 40), dtype) for dtype in ("int32", "bool", "int32")]

    def embed(params, ids, mask, segments):
        return modules.bind(params).embedder.embed(ids, mask, segments)

    counted = jax.jit(embed).lower(modules.shapes, *rows).cost_analysis()["flops"]
    assert embed_flops(config, 8, config.lengths.passage) == pytest.approx(counted, rel=0.1)
    assert (
        embed_flops(config, 8, config.lengths.passage) < counted
    )  # XLA also counts element-wise work
