"""`realm compile`: lowering on the CPU, and with the real TPU compiler in a subprocess (slow)."""

import importlib.util
import json
import subprocess

import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.cli import exit_codes
from realm_jax.cli.main import main
from realm_jax.errors import InputError, RealmError
from realm_jax.parallel.sharding import local_mesh, make_mesh
from realm_jax.planning import programs
from realm_jax.planning.advise import quickest
from realm_jax.planning.chips import CHIPS, slice_of
from realm_jax.planning.compile_all import memory_of
from realm_jax.planning.compile_report import checks, mfu_bound, roofline
from realm_jax.planning.flops import train_flops
from realm_jax.planning.lowered import LoweredProgram, Target
from realm_jax.planning.other_programs import embed
from realm_jax.planning.programs import lower
from realm_jax.planning.stage_programs import train
from realm_jax.runtime import realm_command

CONTRACT = """
hbm_bytes_chip hbm_bytes_peak hbm_share flops_per_chip flops_analytic_ratio collectives
roofline_seconds compile_seconds mfu_bound traffic_by_kind config
"""
OF_EACH_PROGRAM = "name job hbm_share hbm_bytes_peak flops_per_chip roofline_seconds collectives"
SMALL = {
    "model.layers": 6,
    "model.hidden": 128,
    "model.heads": 2,
    "model.mlp": 512,
    "model.compute": "bfloat16",
    "model.remat": "full",
    "lengths.query": 32,
    "lengths.passage": 96,
    "lengths.joint": 128,
    "retrieval.candidates": 4,
    "stages.realm.batch": 16,
    "builder.batch_pieces": 1536,
}
needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]"
)


def test_an_unknown_topology_is_refused_with_a_list_of_known_ones(capsys):
    assert main(["compile", "--topology=v4-128", "--json"]) == exit_codes.ERROR
    output = capsys.readouterr()
    assert "v5e: 2x2 2x4" in output.err and not output.out


@pytest.mark.parametrize("stage", ["ict", "realm"])
def test_a_step_is_lowered_from_its_config_only(stage):
    config = tiny_config(**{f"stages__{stage}__steps": 5})
    program = train(Target(config, make_mesh(config.mesh), 200, 0), stage)
    assert (program.program, program.rows) == (f"{stage}/train", 8)
    assert program.flops == program.useful_flops == train_flops(config, stage, 200)
    text = program.lowered.as_text()
    assert "tensor<200x16xf32>" in text  # the word-piece embedding table
    assert "callback" not in text


def test_the_embedding_program_fills_every_device():
    config = tiny_config()
    program = embed(Target(config, local_mesh(), 200, 0))
    assert program.rows == 8 * (320 // 40)


def test_a_config_without_steps_is_refused():
    config = tiny_config()
    with pytest.raises(InputError, match="no such program"):
        lower("realm/train", config, make_mesh(config.mesh), local_mesh(), 200, 1000)


def test_roofline_of_a_chip():
    collectives = [{"kind": "all-reduce", "bytes": 8e9}, {"kind": "all-gather", "bytes": 8e9}]
    times = roofline(CHIPS["v5e"], 8, 197e12, 819e9, collectives)
    # seven eighths of 8 GB, twice for the all-reduce, at 200 GB/s
    assert times == pytest.approx({"compute": 1.0, "memory": 1.0, "links": 0.105})


def test_the_mfu_bound_leaves_out_recomputed_flops():
    program = LoweredProgram("", None, chips=2, flops=8 * 197e12, recomputed_flops=2 * 197e12)
    assert mfu_bound(CHIPS["v5e"], program, 6.0) == pytest.approx(0.5)
    assert mfu_bound(CHIPS["v5e"], LoweredProgram("", None, chips=2), 0.0) == 0.0


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, 0),
        ({"hbm_share": 0.86}, 1),
        ({"flops_analytic_ratio": 1.2}, 1),
        ({"flops_analytic_ratio": 0.8}, 1),
        ({"host_calls": ["callback"]}, 1),
        ({"collectives": [{"kind": "all-gather", "bytes": 60}]}, 1),
        ({"collectives": [{"kind": "all-reduce", "bytes": 60}]}, 0),
    ],
)
def test_checks_of_a_report(change, failed):
    good = {"hbm_share": 0.5, "flops_analytic_ratio": 1.0, "collectives": [], "host_calls": []}
    results = checks({**good, **change}, parameter_bytes=100, fsdp=1)
    assert sum(not passed for passed in results.values()) == failed


def test_fsdp_may_gather_all_parameters():
    report = {"hbm_share": 0.5, "flops_analytic_ratio": 1.0, "host_calls": []}
    report["collectives"] = [{"kind": "all-gather", "bytes": 100}]
    assert all(checks(report, parameter_bytes=100, fsdp=8).values())


@pytest.mark.parametrize(("gathered", "failed"), [(140, 0), (160, 1)])
def test_slices_gather_what_they_reduce(gathered, failed):
    sizes = {"all-gather": gathered, "all-reduce": 100}
    report = {"hbm_share": 0.5, "flops_analytic_ratio": 1.0, "host_calls": []}
    report["collectives"] = [{"kind": kind, "bytes": size} for kind, size in sizes.items()]
    results = checks(report, parameter_bytes=100, fsdp=1, slices=2)
    assert sum(not passed for passed in results.values()) == failed


def compiled(step, *arguments, topology="v5e:2x2", code=0):
    """Runs `realm compile` in a subprocess and returns its report."""
    overrides = [f"--config.{key}={value}" for key, value in SMALL.items()]
    command = realm_command("compile", f"--step={step}", "--json", f"--topology={topology}")
    command += ["--vocabulary=2000", *overrides, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert ran.stdout and ran.returncode == code, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.slow
@needs_compiler
def test_tpu_compiler_compiles_a_training_step(tmp_path):
    kept = tmp_path / "reports.json"
    report = compiled("train", f"--save={kept}")
    assert set(CONTRACT.split()) <= report.keys()
    assert all(report["checks"].values()), report["checks"]
    assert 0 < report["hbm_bytes_peak"] < report["hbm_bytes_chip"]
    assert any(one["kind"] == "all-reduce" for one in report["collectives"])
    assert report["roofline_seconds"] == max(report["roofline"].values()) > 0
    assert sum(report["traffic_by_kind"].values()) == report["hbm_traffic_bytes"]
    assert 0 < report["mfu_bound"] < 1
    assert [one["name"] for one in json.loads(kept.read_text())] == ["realm/train"]


@pytest.mark.slow
@needs_compiler
def test_tpu_compiler_compiles_the_embedding_program():
    report = compiled("embed")
    assert set(CONTRACT.split()) <= report.keys()
    assert report["rows"] == 4 * 16
    assert report["refresh"]["builder_chips"] == 1
    assert all(report["checks"].values()), report["checks"]


@pytest.mark.slow
@needs_compiler
def test_advise_prints_the_quickest_choice_that_fits():
    found = compiled("realm/train", "--advise", "--config.model.layers=2")
    assert len(found["tried"]) == 6
    fitting = [one for one in found["tried"] if one["hbm_share"] <= 0.85]
    best = min(fitting, key=lambda one: one["roofline_seconds"])
    assert found["advised"] == best["config"]


def test_the_advised_choice_is_the_quickest_that_keeps_the_memory_limit():
    def tried(share, seconds, **error):
        return {"config": {}, "hbm_share": share, "roofline_seconds": seconds, **error}

    target = slice_of("v5e:2x2")
    choices = [tried(0.9, 1.0), tried(0.8, 3.0), tried(0.7, 2.0), tried(0.1, 0.5, error="no")]
    assert quickest(choices, target) == choices[2]
    with pytest.raises(RealmError, match="no choice keeps 85%"):
        quickest([tried(0.9, 1.0), tried(1.2, 1.0, error="too large")], target)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("topology", "changes"), [("v5e:2x2", []), ("2xv5e:2x2", ["--config.mesh.replica=2"])]
)
def test_tpu_compiler_compiles_every_program_of_both_jobs(topology, changes):
    """Small sizes; two slices are joined by `replica`."""
    steps = ["--config.stages.qa.batch=8", "--config.stages.ict.batch=16", "--passages=100000"]
    report = compiled("all", *steps, *changes, topology=topology)
    names = [one["name"] for one in report["programs"]]
    assert names == programs.names(config_lib.load(None))
    for one in report["programs"]:
        assert "error" not in one, one
        assert set(OF_EACH_PROGRAM.split()) <= one.keys()
        assert one["hbm_share"] < 0.85
    assert set(report["host_bytes"]) == {"trainer", "builder"}


@pytest.mark.slow
@needs_compiler
def test_a_program_that_does_not_fit_is_reported(capfd):
    """Every program of the others is still compiled; the exit code is 1."""
    changes = ["--config.stages.realm.batch=65536", "--config.stages.ict.steps=0"]
    changes += ["--config.stages.qa.steps=0", "--config.lengths.passage=480", "--passages=1000"]
    report = compiled("all", *changes, "--config.lengths.joint=512", code=1)
    failed = {one["name"] for one in report["programs"] if "error" in one}
    assert "realm/train" in failed and "embed" not in failed
    [train] = [one for one in report["programs"] if one["name"] == "realm/train"]
    assert "does not fit into the memory of a chip" in train["error"]
    assert train["hbm_share"] > 1


def test_the_memory_of_a_program_that_is_too_large_comes_from_the_compilers_message():
    message = "Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded by 4.75G."
    found = memory_of(message, slice_of("v5e:2x2"))
    assert found == {"hbm_bytes_peak": 20.5 * 2**30, "hbm_share": 20.5 / 16}
    message = "the total memory required for HLO temporaries (137.29G) exceeds available HBM (15G)."
    assert memory_of(message, slice_of("v5e:2x2"))["hbm_share"] == 137.29 / 16
    assert memory_of("the TPU compiler failed", slice_of("v5e:2x2")) == {}
