"""How an approximate index is partitioned, quantised and searched."""

import pytest

from realm_jax import config as configs
from realm_jax.retrieval.search_plan import (
    bytes_of,
    make_plan,
    of_description,
    replan,
    training_sample,
    widen,
)

E = 32


def plan_of(size, **changes):
    options = configs.default().search
    options.update(changes)
    return make_plan(size, E, options)


def test_the_plan_follows_the_rules_of_scann():
    plans = [plan_of(size) for size in (19_999, 20_000, 100_000, 13_000_000)]
    assert [(p["leaves"], p["leaves_searched"], p["reorder"]) for p in plans] == [
        (0, 0, 0),
        (0, 0, 100),
        (316, 32, 100),
        (3606, 361, 100),
    ]


def test_no_more_is_partitioned_searched_or_rescored_than_there_is():
    plan = plan_of(20_000, leaves=30_000, leaves_searched=40_000, reorder=50_000)
    assert [plan[key] for key in ("leaves", "leaves_searched", "reorder")] == [20_000] * 3


def test_a_tree_that_is_asked_for_does_not_need_many_rows():
    assert plan_of(20_000, leaves=100)["leaves_searched"] == 10
    assert plan_of(20_000, leaves=100, soar=True)["soar"]
    assert not plan_of(20_000, soar=True)["soar"]  # without partitions there is no second one


def test_an_exact_index_keeps_float32_vectors_only():
    assert bytes_of(plan_of(1_000, rescore="int8", dims_per_code=2)) == 1_000 * E * 4


@pytest.mark.parametrize(
    ("changes", "row_bytes"),
    [
        ({"rescore": "float32", "dims_per_code": 4}, 4 * E + 4),  # eight codes of half a byte
        ({"rescore": "bfloat16", "dims_per_code": 2}, 2 * E + 8),
        ({"rescore": "int8", "dims_per_code": 5}, E + 4),  # seven codes
        ({"rescore": "int8", "dims_per_code": 2, "leaves": 100, "soar": True}, E + 16),
    ],
)
def test_memory_is_that_of_rescored_vectors_and_codes(changes, row_bytes):
    assert bytes_of(plan_of(20_000, **changes)) == 20_000 * row_bytes


def test_many_partitions_are_trained_on_more_rows():
    assert training_sample(plan_of(100_000)) == 100_000
    assert training_sample(plan_of(13_000_000)) == 360_600


def test_a_search_is_widened_four_times_until_it_is_of_everything():
    plan = plan_of(20_000, leaves=100)
    widened = []
    while widen(plan) and len(widened) < 9:
        widened.append((plan["leaves_searched"], plan["reorder"]))
    assert widened == [(40, 400), (100, 1_600), (100, 6_400), (100, 20_000)]


def test_another_search_of_the_same_partitions_takes_both_of_its_settings():
    plan = plan_of(20_000, leaves=100)
    assert replan(plan, plan_of(20_000, leaves=100, leaves_searched=7, reorder=300))
    assert (plan["leaves_searched"], plan["reorder"]) == (7, 300)


@pytest.mark.parametrize(
    ("size", "changes"),
    [
        (20_001, {}),
        (20_000, {"leaves": 101}),
        (20_000, {"rescore": "int8"}),
        (20_000, {"dims_per_code": 5}),
        (20_000, {"soar": True}),
    ],
)
def test_partitions_are_not_searched_by_a_plan_that_trains_others(size, changes):
    plan = plan_of(20_000, leaves=100)
    before = dict(plan)
    assert not replan(plan, plan_of(size, **{"leaves": 100, **changes}))
    assert plan == before
    assert not replan(plan_of(1_000), plan_of(1_000))  # exact search has no partitions


def test_keys_that_older_versions_did_not_write_have_their_values():
    plan = plan_of(20_000, rescore="float32", dims_per_code=2)
    older = {key: plan[key] for key in plan if key not in ("rescore", "soar", "dims_per_code")}
    assert of_description({"plan": older}) == plan
