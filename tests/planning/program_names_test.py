"""`realm compile --step=all` compiles every program that the source code of both jobs names."""

import ast
import re
from pathlib import Path

import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.parallel.sharding import local_mesh, make_mesh
from realm_jax.planning import programs
from realm_jax.planning.compile_report import MOST_HBM
from realm_jax.planning.reference_reports import REFERENCE_REPORTS, read_reports

PACKAGE = Path(programs.__file__).parents[1]
OF_OTHER_VERBS = ("answer/", "report/", "tagger/", "import/")  # programs of neither job
OF_EACH_PROGRAM = {"name", "job", "hbm_share", "hbm_bytes_peak", "flops_per_chip"}
OF_EACH_PROGRAM |= {"roofline_seconds", "collectives"}  # of `realm compile --step=all --json`
STEPS = {f"stages__{name}__steps": 5 for name in ("reader", "ict", "realm", "qa")}


def names_in_source():
    """First arguments of `Program(...)`, as patterns: the value of an f-string is any stage."""
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "planning":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and called_name(node) == "Program":
                yield pattern_of(node.args[0]), path.name


def called_name(call):
    """`Program` for `Program(...)` and for `program.Program(...)`."""
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def pattern_of(name):
    if isinstance(name, ast.Constant):
        return re.escape(name.value)
    assert isinstance(name, ast.JoinedStr), "a program needs a literal name"
    return "".join(
        re.escape(part.value) if isinstance(part, ast.Constant) else r"\w+" for part in name.values
    )


@pytest.fixture(scope="module")
def lowered():
    config = tiny_config(**STEPS)
    mesh, builder = make_mesh(config.mesh), local_mesh()
    return {
        name: programs.lower(name, config, mesh, builder, 200, 1000)
        for name in programs.names(config)
    }


def test_every_program_of_both_jobs_is_compiled(lowered):
    compiled = {one.program for one in lowered.values()}
    for pattern, file in names_in_source():
        if not pattern.startswith(OF_OTHER_VERBS):
            assert any(re.fullmatch(pattern, name) for name in compiled), (pattern, file)


def test_every_compiled_program_is_in_the_source(lowered):
    patterns = [pattern for pattern, _ in names_in_source()]
    for name, one in lowered.items():
        assert one.program == (programs.ENTRIES[name].program or name)
        named = any(re.fullmatch(pattern, one.program) for pattern in patterns)
        assert named or one.program == "restore"  # a copy of arrays; no program runs


@pytest.mark.parametrize("topology", ["v4:4x4x4", "v5e:8x8", "v5p:4x4x4", "v6e:8x8", "2xv5e:8x8"])
def test_every_program_of_the_papers_run_was_compiled_and_fits(topology):
    """`make compile-tables` compiles those that have no report."""
    reports = {
        one["name"]: one for one in read_reports(REFERENCE_REPORTS) if one["topology"] == topology
    }
    config = config_lib.load("realm_wikipedia")
    assert set(programs.names(config)) <= reports.keys()
    for name in programs.names(config):
        report = reports[name]
        assert report.keys() >= OF_EACH_PROGRAM
        assert report["program"] == (programs.ENTRIES[name].program or name)
        assert report["job"] == programs.ENTRIES[name].job
        assert report["hbm_share"] <= MOST_HBM and all(report["checks"].values())


def test_both_jobs_have_programs(lowered):
    by_job = {
        job: {n for n, one in lowered.items() if one.job == job} for job in ("trainer", "builder")
    }
    assert {"realm/train", "realm/evaluate", "ict/train", "ict/evaluate", "qa/train"} <= by_job[
        "trainer"
    ]
    assert {"init", "restore"} <= by_job["trainer"]
    assert by_job["builder"] == {"embed", "search/probes"}


def test_a_stage_without_steps_has_no_programs():
    names = programs.names(tiny_config(stages__realm__steps=5))
    assert "realm/train" in names and "ict/train" not in names


@pytest.mark.parametrize("stage", ["ict", pytest.param("realm", marks=pytest.mark.slow)])
def test_an_evaluation_needs_less_memory_than_a_step(lowered, stage):
    """On the default config it once needed more than ten times the memory of the step."""
    train, evaluate = (
        lowered[f"{stage}/{what}"].lowered.compile().memory_analysis().temp_size_in_bytes
        for what in ("train", "evaluate")
    )
    assert evaluate < train


def test_no_program_calls_the_host(lowered):
    for name, one in lowered.items():
        assert "callback" not in one.lowered.as_text(), name
