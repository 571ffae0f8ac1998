"""The planner against cases computed by hand."""

import json

import pytest

from realm_jax import config as config_lib
from realm_jax.cli import exit_codes
from realm_jax.cli.main import main
from realm_jax.errors import ConfigError, InputError
from realm_jax.planning import reference_reports
from realm_jax.planning.chips import slice_of
from realm_jax.planning.flops import embed_flops, evaluation_flops, train_flops
from realm_jax.planning.limits import Assumptions
from realm_jax.planning.plan import embedding_seconds, plan, share_for
from realm_jax.planning.run_time import bounded, staleness

# 64 chips: a step takes 0.1 s; 6,400 passages are embedded in 1 s, 100 per chip and second
TRAIN = {"roofline_seconds": 0.1, "chips": 64, "hbm_bytes_peak": 4 * 2**30, "flops_per_chip": 1e13}
EMBED = {"roofline_seconds": 1.0, "chips": 64, "rows": 6400}
EVALUATE = {"roofline_seconds": 0.05, "chips": 64}
REPORTS = {"realm/train": TRAIN, "realm/evaluate": EVALUATE, "embed": EMBED}
ASSUMED = Assumptions(share_of_roofline=0.5, build_seconds=32e-6, build_threads=32)


def make_plan(passages=1_000_000, share=0.2, topology="v4:4x4x4", **changes):
    config = config_lib.load(None, {k.replace("__", "."): v for k, v in changes.items()})
    return plan(slice_of(topology), passages, share, config, REPORTS, ASSUMED)


def test_a_million_passages_by_hand():
    found = make_plan()
    assert (found["train_chips"], found["builder_chips"]) == (64, 16)  # as in the paper
    assert found["step_seconds"] == pytest.approx(0.2)
    # 1e6 / (16 chips x 100 per second x 0.5) = 1250 s; built in 1 s; 320 bytes per passage
    assert found["refresh_parts"] == pytest.approx(
        {"embed": 1250.0, "build": 1.0, "write": 0.320, "read": 0.320}
    )
    assert found["refresh_steps"] == pytest.approx(1251.64 / 0.2)
    assert found["staleness_steps"] == pytest.approx(1.5 * 6258.2 + 250)
    assert found["index_bytes"] == 320e6
    assert found["evaluation_seconds"] == pytest.approx(0.1)  # one batch of 512 queries
    three_batches = make_plan(evaluation__queries="1025")
    assert three_batches["evaluation_seconds"] == pytest.approx(0.3)
    assert found["first_step_seconds"] == found["refresh_seconds"]


def test_soar_stores_the_codes_of_a_passage_twice():
    """As `search_plan.bytes_of` counts them; FAISS has no SOAR."""
    assert make_plan(search__soar="True")["index_bytes"] == 384e6
    assert make_plan(search__soar="True", search__kind="faiss")["index_bytes"] == 320e6


def test_hours_are_those_of_all_stages_and_of_the_first_index():
    """64 chips of 1e13 FLOPs in 0.1 s, half of which are reached."""
    found = make_plan()
    ict = train_flops(config_lib.load(None), "ict", 30_522) / (64 * 0.5e14)
    hours = {"ict": 100_000 * ict / 3600, "realm": (200_000 * 0.2 + 200 * 0.1) / 3600}
    assert found["stage_hours"] == pytest.approx(hours)
    assert found["wait_hours"] == pytest.approx(found["refresh_seconds"] / 3600)
    total = sum(hours.values()) + found["wait_hours"]
    assert found["days"] == pytest.approx(total / 24)
    assert found["chip_hours"] == pytest.approx(total * 80)
    once = make_plan(stages__realm__evaluate_every="0")  # after the last step
    assert once["stage_hours"]["realm"] == pytest.approx((200_000 * 0.2 + 0.1) / 3600)
    only = make_plan(stages__ict__steps="0", stages__reader__steps="1000")
    assert only["stage_hours"].keys() == {"reader", "realm"}
    before = make_plan(stages__realm__steps="0")
    assert (before["stage_hours"].keys(), before["wait_hours"]) == ({"ict"}, 0.0)


def test_in_sync_mode_the_run_waits_for_each_index():
    found = make_plan(refresh__mode="sync")
    assert found["staleness_steps"] == 249.5  # 0 to 499
    assert found["wait_hours"] == pytest.approx(400 * found["refresh_seconds"] / 3600)
    assert "staleness" not in limits_of(found) and found["broken"] == []


def test_steps_wait_for_an_index_that_is_not_too_old():
    """A refresh takes 6258.2 steps: two of them to 4,000 steps and half an interval."""
    found = make_plan(refresh__max_staleness="4000")
    steps = (4000 - 250) / 2  # of each refresh
    waited = 200_000 * (found["refresh_steps"] / steps - 1) * 0.2 + found["refresh_seconds"]
    assert found["wait_hours"] == pytest.approx(waited / 3600, rel=0.1)
    assert 2000 < found["staleness_steps"] < 4000 and found["broken"] == []
    fast = make_plan(10_000, refresh__max_staleness="4000")
    free = make_plan(10_000)
    same = ("staleness_steps", "wait_hours", "days")
    assert [fast[name] for name in same] == [free[name] for name in same]


def test_the_most_strict_staleness_waits_for_each_index_as_sync_mode_does():
    assert bounded(100.0, 500, 499).step_time == pytest.approx(600 / 500)
    assert bounded(2000.0, 500, 499).step_time == pytest.approx(2500 / 500)
    assert bounded(100.0, 500, 10_000).step_time == pytest.approx(1.0)
    assert bounded(100.0, 500, 10_000).staleness == pytest.approx(staleness(100.0, 500), rel=0.01)


def test_rolling_refreshes_are_refused():
    with pytest.raises(ConfigError, match=r"refresh\.mode=async"):
        make_plan(refresh__mode="rolling")


def test_requests_and_bytes_of_a_refresh_by_hand():
    """245 shards of 4,096 passages; vectors of 512 bytes are written, 576 are published.

    Worker 0 of four reads the shards of the other three.
    """
    store = make_plan()["store"]
    assert store["requests"] == pytest.approx(1.75 * 245)
    assert store["bytes"] == pytest.approx(1.75 * 512e6 + 17 * (320 + 256) * 1e6)
    alone = make_plan(share=0.05)["store"]
    assert alone["requests"] == 245


def test_staleness_breaks_first_if_builders_are_few():
    found = make_plan()
    assert found["breaks_first"] == "staleness" and found["broken"] == ["staleness"]
    # The alarm allows 4,750 / 1.5 steps of 0.2 s; a passage takes 1251.64 microseconds
    assert found["breaks_at_passages"] == pytest.approx(4750 / 1.5 * 0.2 / 1251.64e-6)
    at_the_edge = make_plan(int(found["breaks_at_passages"]))
    assert at_the_edge["broken"] == []
    assert at_the_edge["staleness_steps"] == pytest.approx(5000, rel=1e-3)


def limits_of(planned):
    return {limit["part"]: limit["passages"] for limit in planned["limits"]}


def test_memory_is_that_of_a_segment_in_the_builder_and_of_a_share_in_each_host():
    limits = limits_of(make_plan())
    assert limits["row numbers"] == 2**31 - 1
    assert limits["a trainer host's memory"] == pytest.approx(0.8 * 407e9 / (2 * 320 / 16 + 8))
    a_segment = 1e6 * (512 + 320)
    assert limits["the builder's memory"] == pytest.approx((0.8 * 407e9 - a_segment) / 24)
    assert list(limits.values()) == sorted(limits.values())
    one = make_plan(10**9, search__segment_passages="1000000000")
    assert limits_of(one)["the builder's memory"] == pytest.approx(0.8 * 407e9 / 856)
    assert "the builder's memory" in one["broken"]


def test_a_billion_passages_break_neither_memory_nor_disks():
    found = make_plan(10**9)
    assert found["broken"] == ["staleness"]
    assert (found["segments"], found["placement"]) == (500, "hosts")
    assert found["corpus_on"] == "a file system that all machines mount"
    # four builder machines: 600 bytes of a passage at 1 GB/s; segments are gathered by worker 0
    parts = found["refresh_parts"]
    assert parts["corpus"] == pytest.approx(600 / 4)
    assert parts["write"] == pytest.approx(320 * (1 + 1 / 4 + 1))
    assert (parts["build"], parts["read"]) == pytest.approx((1000 / 4, 320 / 16))
    bytes_moved = 512 + 3 * 576 + 320 + 16 * 256
    assert found["store"]["bytes"] == pytest.approx(bytes_moved * 1e9)


def test_segments_are_spread_over_hosts_only_if_one_host_is_too_small():
    edge = int(0.8 * 407e9 / (2 * 320 + 8))
    assert [make_plan(size)["placement"] for size in (edge, edge + 1)] == ["everywhere", "hosts"]
    assert make_plan(search__placement="hosts")["placement"] == "hosts"
    assert make_plan(10**9, search__kind="mesh")["placement"] == "everywhere"


def test_mesh_search_is_limited_by_device_memory_and_needs_no_build():
    found = make_plan(search__kind="mesh")
    assert found["refresh_parts"]["build"] == 0.0
    assert found["refresh_parts"]["read"] == pytest.approx(0.256 / 16)  # each host reads its rows
    limits = limits_of(found)
    left = 0.8 * 32 * 2**30 - 4 * 2**30
    assert limits["device memory"] == pytest.approx(64 * left / (2 * 256))


def test_a_larger_corpus_exceeds_more_limits():
    broken = [len(make_plan(passages)["broken"]) for passages in (10**5, 10**9, 10**11)]
    assert broken == sorted(broken) == [0, 1, 4] and len(make_plan()["limits"]) == 4


def test_step_time_is_inverse_to_the_number_of_chips():
    assert make_plan(topology="v4:4x4x8")["step_seconds"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("refresh", "every", "mean"),
    [(100.0, 500, 350.0), (500.0, 500, 750.0), (2000.0, 500, 3250.0)],
)
def test_staleness_of_fast_and_slow_builders(refresh, every, mean):
    assert staleness(refresh, every) == mean


def test_embedding_seconds_scale_with_passages_and_chips():
    # 6,400 passages per second on 64 chips
    assert embedding_seconds(EMBED, 64_000, 16) == pytest.approx(40.0)


def test_builder_share_for_a_refresh_interval():
    # four times as fast: 64 chips build and 64 train
    assert share_for(2000.0, 500.0, 0.2) == pytest.approx(0.5)


@pytest.mark.parametrize(("passages", "share"), [(0, 0.2), (10, 0.0), (10, 1.0), (10, -1.0)])
def test_impossible_arguments_are_refused(passages, share):
    with pytest.raises(InputError):
        make_plan(passages, share)


def test_plan_command_prints_all_documented_fields(tmp_path, capsys):
    kept = tmp_path / "reports.json"
    config = config_lib.load(None)
    flops = {
        "realm/train": train_flops(config, "realm", 30_522),
        "realm/evaluate": evaluation_flops(config, "realm", 30_522),
        "embed": embed_flops(config, 6400, 288),
    }
    for name, report in REPORTS.items():
        described = {"topology": "v4:4x4x4", "name": name}
        described |= {"flops_per_chip": flops[name] / 64, "flops_analytic_ratio": 1.0}
        reference_reports.add_report(kept, {**report, **described})
    arguments = ["plan", "--topology=v4:4x4x4", "--builder_share=0.2", f"--reports={kept}"]
    assert main([*arguments, "--passages=1e9", "--json"]) == exit_codes.DONE
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    contract = "step_seconds refresh_seconds staleness_steps index_bytes chip_hours breaks_first"
    assert set(contract.split()) <= found.keys()
    assert found["passages"] == 10**9
    assert main([*arguments, "--passages=1e9"]) == exit_codes.DONE
    assert "BREAKS at" in capsys.readouterr().out


@pytest.mark.parametrize("passages", ["many", "0", "1.5", "inf", "nan", "-1e9"])
def test_an_invalid_number_of_passages_is_refused(passages, capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--topology=v4:4x4x4", f"--passages={passages}"])
    assert "--passages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (["model.layers=4", "model.hidden=256", "model.heads=4", "model.mlp=1024"], "realm/train"),
        (["stages.realm.batch=64"], "realm/train"),
        (["retrieval.candidates=4"], "realm/train"),
        (["lengths.passage=344"], "realm/evaluate"),
    ],
)
def test_reports_of_other_sizes_are_refused(changes, name, capsys):
    overrides = [f"--config.{change}" for change in changes]
    assert main(["plan", "--topology=v4:4x4x4", *overrides]) == exit_codes.ERROR
    error = capsys.readouterr().err
    assert f"{name} has other sizes" in error and "realm compile --topology=v4" in error


def test_reports_may_differ_in_remat(capsys):
    for remat in ("full", "attention", "none"):
        arguments = ["plan", "--topology=v4:4x4x4", f"--config.model.remat={remat}"]
        assert main(arguments) == exit_codes.DONE, capsys.readouterr().err


def test_a_chip_without_reports_is_refused_with_the_compile_command(tmp_path, capsys):
    kept = tmp_path / "reports.json"
    report = {"topology": "v4:4x4x4", "name": "realm/train"}
    reference_reports.add_report(kept, report)
    assert main(["plan", "--topology=v6e:8x8", f"--reports={kept}"]) == exit_codes.ERROR
    assert "realm compile --topology=v6e:8x8" in capsys.readouterr().err


def test_a_new_report_replaces_an_older_one(tmp_path):
    kept = tmp_path / "reports.json"
    for seconds in (1, 2):
        report = {"topology": "v4:4x4x4", "name": "realm/train", "n": seconds}
        reference_reports.add_report(kept, report)
    assert [one["n"] for one in reference_reports.read_reports(kept)] == [2]
