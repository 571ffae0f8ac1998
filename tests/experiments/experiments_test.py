"""Every experiment has a valid config, and documents its cost and expected results."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from realm_jax import config as config_lib
from realm_jax.planning.chips import slice_of
from realm_jax.planning.reference_reports import BERT_VOCABULARY, reports_for
from realm_jax.planning.run_time import stage_chip_hours

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ALL = sorted(EXPERIMENTS.glob("*.py"))
PAPER = {
    "ict_wikipedia": ("13.9", "31.3"),
    "realm_wikipedia": ("39.2", "40.2", "46.8", "38.2", "38.5"),
    "realm_ccnews": ("40.4", "40.7", "42.9"),
    "finetune_nq": ("39.2", "38.2", "40.4"),
    "finetune_webq": ("40.2", "40.7", "41.7"),
    "finetune_trec": ("46.8", "42.9"),
    "random_token": ("32.3", "24.2"),
    "random_span": ("35.3", "26.1"),
    "stale_30x": ("28.7", "15.1"),
    "retriever_only": ("37.4", "38.5"),
    "encoder_only": ("35.3", "13.9"),
}
STAGES = {
    "ict_wikipedia": ("ict",),
    "realm_wikipedia": ("ict", "realm"),
    **dict.fromkeys(("realm_ccnews", "random_token", "random_span", "stale_30x"), ("realm",)),
    **dict.fromkeys(("finetune_nq", "finetune_webq", "finetune_trec"), ("qa",)),
    **dict.fromkeys(("retriever_only", "encoder_only"), ("qa",)),
}


def header(path):
    found = ast.get_docstring(ast.parse(path.read_text()))
    assert found
    return found


def section(text, name):
    """Returns the section of a docstring, joined to one line."""
    found = re.search(rf"^{name}: +(.*(?:\n +.*)*)", text, re.MULTILINE)
    assert found, f"no section {name}:"
    return " ".join(found[1].split())


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_an_experiment_loads_and_documents_its_command(path):
    config = config_lib.load(path)
    assert set(config_lib.keys(config)) == set(config_lib.keys(config_lib.default()))
    assert section(header(path), "Command").split()[0] in ("realm", "python", "cp")
    assert section(header(path), "Hours") and section(header(path), "Expect")


@pytest.mark.parametrize("name", ["almanac", "own_corpus"])
def test_batch_sizes_of_small_experiments_divide_by_eight_devices(name):
    stages = config_lib.load(EXPERIMENTS / f"{name}.py").stages
    assert {stage: own.batch % 8 for stage, own in stages.items()} == dict.fromkeys(stages, 0)


@pytest.mark.parametrize("name", PAPER)
def test_experiments_of_the_paper_document_expected_results(name):
    path = EXPERIMENTS / f"{name}.py"
    expected = section(header(path), "Expect")
    assert not [number for number in PAPER[name] if number not in expected]
    used = section(header(path), "Command")
    assert f"experiments/{name}.py" in used
    for command in re.findall(r"realm (?:run|train|finetune) (?:(?! realm ).)*", used):
        assert shlex.split(command.replace("\\", ""))


@pytest.mark.parametrize("name", PAPER)
def test_documented_hours_match_the_compile_report(name):
    """Compares the hours of the training chips; the docstring may round."""
    config = config_lib.load(EXPERIMENTS / f"{name}.py")
    report = reports_for(slice_of("v5e:8x8"))["realm/train"]
    hours = [stage_chip_hours(config, stage, report, BERT_VOCABULARY) for stage in STAGES[name]]
    hours_text = section(header(EXPERIMENTS / f"{name}.py"), "Hours")
    found = re.match(r"([\d,.]+) v5e chip-hours", hours_text)
    assert found, hours_text
    assert float(found[1].replace(",", "")) == pytest.approx(sum(hours), rel=0.06)


def test_each_ablation_differs_from_realm_in_one_setting():
    base = config_lib.load(EXPERIMENTS / "realm_wikipedia.py").to_dict()
    changed = {}
    for name in ("random_token", "random_span", "stale_30x", "retriever_only"):
        other = config_lib.load(EXPERIMENTS / f"{name}.py").to_dict()
        changed[name] = {part for part in base if base[part] != other[part]}
    assert changed == {
        "random_token": {"masking"},
        "random_span": {"masking"},
        "stale_30x": {"refresh"},
        "retriever_only": {"stages"},
    }


def test_all_experiments_of_the_paper_use_the_same_model():
    hashes = {config_lib.model_hash(config_lib.load(EXPERIMENTS / f"{name}.py")) for name in PAPER}
    assert len(hashes) == 1  # one experiment can start from the params of another


@pytest.mark.parametrize("name", ["own_corpus", "own_corpus_bert"])
def test_small_experiments_fine_tune_for_at_most_the_pre_training_steps(name):
    stages = config_lib.load(EXPERIMENTS / f"{name}.py").stages
    assert 0 < stages.qa.steps <= stages.realm.steps
