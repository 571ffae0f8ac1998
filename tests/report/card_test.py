"""The model card: valid for Hugging Face, with the values of the run and no others."""

import json
import shutil

import pytest
from huggingface_hub import ModelCard

from realm_jax.artifacts.verify import check
from realm_jax.report.card import model_card
from realm_jax.report.curves import _staleness
from realm_jax.report.measure import measure
from realm_jax.report.run_data import read_run
from realm_jax.storage.layout import RunDir


@pytest.fixture
def run(reported, tmp_path):
    shutil.copytree(reported.workdir, tmp_path / "run")
    return RunDir(tmp_path / "run")


def test_card_lists_the_measured_values(reported):
    card = ModelCard.load(str(reported.export / "README.md"))
    measured = json.loads(reported.report.read_text())
    values = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert values == {
        "recall@5 of masked sentences": round(measured["recall_at_5"]["realm"], 4),
        "retrieval utility (nats per masked word piece)": 0.75,
    }
    assert card.data.pipeline_tag == "question-answering"
    assert card.data.library_name == "realm-jax"
    for text in ("index of step 4", "export of step 4", "| layers | 2 |", "4 steps in 8 s"):
        assert text in card.text
    assert "# &lt;b&gt;bold run" in card.text


def test_values_that_were_not_measured_are_omitted(run):
    run.report.unlink()
    shutil.rmtree(run.logs)
    card = ModelCard(model_card(read_run(str(run.workdir))))
    assert card.data.eval_results is None
    assert "Evaluation" not in card.text and "stage" not in card.text


def test_a_stage_that_ended_early_has_the_steps_that_it_trained(run):
    log = run.logs / "realm.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    last = records[-1] | {"trained_steps": 2.0}  # it is logged at the last step of the config
    records = [record for record in records if record["step"] <= 2] + [last]
    log.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    read = read_run(str(run.workdir))
    assert "2 steps in 8 s" in model_card(read)
    assert measure(read)["staleness_steps"] == {"mean": 0.5, "max": 1.0}
    assert _staleness(read)[-1] == (2.0, 2.0)
    assert read.values("realm", "held_out_retrieval_utility")[-1] == (2.0, 0.75)


def test_the_card_compares_with_bm25_and_the_start(run):
    measured = json.loads(run.report.read_text())
    shares = {"bm25": 0.25, "start": 0.5, "realm": 0.75, "hybrid": 1.0}
    compared = {"k": 5, "held_out": {"queries": 8, **shares}}
    run.report.write_text(json.dumps({**measured, "baselines": compared}))
    lines = model_card(read_run(str(run.workdir))).splitlines()
    at = lines.index("| retriever | held-out sentences (8) |")
    assert [line.split("|")[2].strip() for line in lines[at + 2 : at + 6]] == [
        "25.0%",
        "50.0%",
        "75.0%",
        "100.0%",
    ]


def test_exact_match_is_listed_after_it_was_measured(run):
    measured = json.loads(run.report.read_text())
    run.report.write_text(
        json.dumps({**measured, "exact_match": 0.5, "exact_match_closed_book": 0.125})
    )
    card = ModelCard(model_card(read_run(str(run.workdir))))
    values = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert values["exact match"] == 0.5
    assert values["exact match without retrieval"] == 0.125


def test_a_run_with_a_card_passes_its_check(reported):
    assert check(str(reported.workdir))["problems"] == []
