"""The planner against cases reckoned by hand."""

import json

import pytest

from realm_jax import config as config_lib
from realm_jax.cli import exit_codes
from realm_jax.cli.main import main
from realm_jax.errors import InputError
from realm_jax.planning import reference_reports
from realm_jax.planning.chips import slice_of
from realm_jax.planning.flops import embed_flops, train_flops
from realm_jax.planning.limits import Assumptions
from realm_jax.planning.plan import (
    embedding_seconds,
    plan,
    share_for,
    staleness,
)

# 64 chips: a step of 0.1 s; 6,400 passages embedded in 1 s, so 100 a chip and second
TRAIN = {"roofline_seconds": 0.1, "chips": 64, "hbm_bytes_peak": 4 * 2**30}
EMBED = {"roofline_seconds": 1.0, "chips": 64, "rows": 6400}
REPORTS = {"train": TRAIN, "embed": EMBED}
ASSUMED = Assumptions(share_of_roofline=0.5, build_seconds=32e-6, build_threads=32)


def made(passages=1_000_000, share=0.2, topology="v4:4x4x4", **changes):
    config = config_lib.load(None, {k.replace("__", "."): v for k, v in changes.items()})
    return plan(slice_of(topology), passages, share, config, REPORTS, ASSUMED)


def test_a_million_passages_by_hand():
    found = made()
    assert (found["train_chips"], found["builder_chips"]) == (64, 16)  # the paper's
    assert found["step_seconds"] == pytest.approx(0.2)
    # 1e6 / (16 chips x 100 a second x half the speed) = 1250 s; built in 1 s; 320 bytes a passage
    assert found["refresh_parts"] == pytest.approx(
        {"embed": 1250.0, "build": 1.0, "write": 0.320, "read": 0.320}
    )
    assert found["refresh_steps"] == pytest.approx(1251.64 / 0.2)
    assert found["staleness_steps"] == pytest.approx(1.5 * 6258.2 + 250)
    assert found["index_bytes"] == 320e6
    assert found["days"] == pytest.approx(200_000 * 0.2 / 86_400)
    assert found["chip_hours"] == pytest.approx(200_000 * 0.2 / 3600 * 80)


def test_staleness_breaks_first_where_builders_are_few():
    found = made()
    assert found["breaks_first"] == "staleness" and found["broken"] == ["staleness"]
    # 4,750 / 1.5 steps of 0.2 s fit the alarm; a passage takes 1251.64 microseconds
    assert found["breaks_at_passages"] == pytest.approx(4750 / 1.5 * 0.2 / 1251.64e-6)
    at_the_edge = made(int(found["breaks_at_passages"]))
    assert at_the_edge["broken"] == []
    assert at_the_edge["staleness_steps"] == pytest.approx(5000, rel=1e-3)


def test_memory_breaks_before_row_numbers():
    limits = {limit["part"]: limit["passages"] for limit in made()["limits"]}
    assert limits["a trainer host's memory"] == pytest.approx(0.8 * 407e9 / (2 * 320))
    assert limits["the builder's memory"] == pytest.approx(0.8 * 407e9 / 512)
    assert limits["row numbers"] == 2**31 - 1
    assert list(limits.values()) == sorted(limits.values())


def test_search_on_the_mesh_needs_device_memory_and_no_build():
    found = made(search__kind="mesh")
    assert found["refresh_parts"]["build"] == 0.0
    assert found["refresh_parts"]["read"] == pytest.approx(0.256 / 16)  # each host its own rows
    limits = {limit["part"]: limit["passages"] for limit in found["limits"]}
    left = 0.8 * 32 * 2**30 - 4 * 2**30
    assert limits["device memory"] == pytest.approx(64 * left / (2 * 256))


def test_a_larger_corpus_breaks_more():
    broken = [len(made(passages)["broken"]) for passages in (10**5, 10**9, 10**11)]
    assert broken == sorted(broken) and broken[-1] == len(made()["limits"])


def test_work_divides_over_chips():
    assert made(topology="v4:4x4x8")["step_seconds"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("refresh", "every", "mean"),
    [(100.0, 500, 350.0), (500.0, 500, 750.0), (2000.0, 500, 3250.0)],
)
def test_staleness_of_quick_and_slow_builders(refresh, every, mean):
    assert staleness(refresh, every) == mean


def test_embedding_alone():
    # 6,400 passages a second on 64 chips
    assert embedding_seconds(EMBED, 64_000, 16) == pytest.approx(40.0)


def test_the_share_that_would_be_needed():
    # four times as quick: 64 builders beside 64 trainers
    assert share_for(2000.0, 500.0, 0.2) == pytest.approx(0.5)


@pytest.mark.parametrize(("passages", "share"), [(0, 0.2), (10, 0.0), (10, 1.0), (10, -1.0)])
def test_what_cannot_be_is_refused(passages, share):
    with pytest.raises(InputError):
        made(passages, share)


def test_the_verb_prints_its_contract(tmp_path, capsys):
    kept = tmp_path / "reports.json"
    config = config_lib.load(None)
    flops = {"train": train_flops(config, "realm", 30_522), "embed": embed_flops(config, 6400)}
    for step, report in REPORTS.items():
        described = {"topology": "v4:4x4x4", "step": step, "program": step}
        described |= {"flops_per_chip": flops[step] / 64, "flops_analytic_ratio": 1.0}
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
def test_a_number_of_passages_that_is_none_is_refused(passages, capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--topology=v4:4x4x4", f"--passages={passages}"])
    assert "--passages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        (["model.layers=4", "model.hidden=256", "model.heads=4", "model.mlp=1024"], "train"),
        (["stages.realm.batch=64"], "train"),
        (["retrieval.candidates=4"], "train"),
        (["lengths.passage=512"], "embed"),
    ],
)
def test_reports_of_other_sizes_are_refused(changes, step, capsys):
    overrides = [f"--config.{change}" for change in changes]
    assert main(["plan", "--topology=v4:4x4x4", *overrides]) == exit_codes.PROBLEM
    said = capsys.readouterr().err
    assert f"step {step} is of other sizes" in said and "realm compile --topology=v4" in said


def test_recomputed_activations_are_no_other_size(capsys):
    for remat in ("true", "false"):
        arguments = ["plan", "--topology=v4:4x4x4", f"--config.model.remat={remat}"]
        assert main(arguments) == exit_codes.DONE, capsys.readouterr().err


def test_a_chip_without_reports_is_named(tmp_path, capsys):
    kept = tmp_path / "reports.json"
    reference_reports.add_report(kept, {"topology": "v4:4x4x4", "step": "train", "program": "realm"})
    assert main(["plan", "--topology=v6e:8x8", f"--reports={kept}"]) == exit_codes.PROBLEM
    assert "realm compile --topology=v6e:8x8" in capsys.readouterr().err


def test_a_report_takes_the_place_of_an_older_one(tmp_path):
    kept = tmp_path / "reports.json"
    for seconds in (1, 2):
        report = {"topology": "v4:4x4x4", "step": "train", "program": "realm", "n": seconds}
        reference_reports.add_report(kept, report)
    assert [one["n"] for one in reference_reports.read_reports(kept)] == [2]
