"""Fine-tuning and evaluation with each benchmark's question format."""

import json
import shutil
import threading

import pytest
from support.builder_thread import building
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.export import read_export
from realm_jax.storage.layout import RunDir
from realm_jax.trainer import run as trainer
from realm_jax.trainer.inputs import open_inputs

STEPS = 2
TUNED = 3  # the same in all tests, so that one program serves them
OTHERS = ("webquestions", "trec", "squad")


@pytest.fixture(scope="module")
def pretrained(tiny, tmp_path_factory):
    """A run after pre-training, without fine-tuning."""
    workdir = tmp_path_factory.mktemp("pretrained") / "run"
    config = tiny_config(tiny.folder, model__layers=1, stages__realm__steps=STEPS)
    with building(workdir):
        trainer.run(str(workdir), config, threading.Event())
    return workdir


def written(format, questions):
    """Writes the questions of the tiny corpus in the benchmark's format."""
    if format == "nq":
        return "".join(f"{q.text}\t{list(q.answers)!r}\n" for q in questions)
    if format == "webquestions":
        return json.dumps([{"qText": q.text, "answers": q.answers} for q in questions])
    if format == "trec":
        return "".join(f"{i}\tx\t{q.text}\t{q.answers[0]}|y\n" for i, q in enumerate(questions))
    entries = [
        {"id": f"{i}", "question": q.text, "answers": [{"text": a} for a in q.answers]}
        for i, q in enumerate(questions)
    ]
    return json.dumps({"data": [{"paragraphs": [{"qas": entries}]}]})


@pytest.mark.slow
@pytest.mark.parametrize("format", ["nq", *OTHERS])
def test_fine_tuning_and_evaluation_on_each_benchmark(realm, pretrained, tiny, tmp_path, format):
    workdir, path = tmp_path / "run", tmp_path / "questions"
    shutil.copytree(pretrained, workdir)
    path.write_text(written(format, tiny.questions))
    asked = [f"--workdir={workdir}", f"--questions={path}", f"--format={format}", "--json"]
    tuned = realm("finetune", *asked, f"--config.stages.qa.steps={TUNED}")
    assert tuned.json() == {"state": "done", "export_step": STEPS + TUNED}, tuned.err
    assert {"question_embedder", "span_head"} <= read_export(RunDir(workdir)).networks.keys()
    report = realm("eval", *asked).json()
    assert report["questions"] == len(tiny.questions)
    # The answer of every question is in a passage, and all forty passages are retrieved.
    assert report["recall_at"]["100"] == 1.0
    assert 0 < report["reader_oracle"] <= report["recall_at"]["5"]
    assert report["exact_match"] <= report["reader_oracle"]
    lines = (workdir / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == len(tiny.questions)


@pytest.mark.slow
def test_a_run_keeps_the_format_of_its_questions(realm, pretrained, tiny, tmp_path):
    workdir, path = tmp_path / "run", tmp_path / "questions.tsv"
    shutil.copytree(pretrained, workdir)
    path.write_text(written("trec", tiny.questions))
    command = ["finetune", f"--workdir={workdir}", f"--questions={path}", "--json"]
    steps = "--config.stages.qa.steps=1"
    assert realm(*command, "--format=trec", steps).code == 0
    corpus = json.loads((workdir / "config.json").read_text())["corpus"]
    assert (corpus["questions_format"], corpus["questions_part"]) == ("trec", "all")
    without = tmp_path / "without.tsv"
    without.write_text(written("trec", tiny.questions[:1]))
    other = realm(*command, "--format=trec", steps, f"--without={without}")
    other.refused("fine-tuned on other questions")
    unchanged = json.loads((workdir / "config.json").read_text())["corpus"]
    assert unchanged == corpus, "a refused command changed the config of the run"

    second = tmp_path / "second"
    shutil.copytree(pretrained, second)
    command[1] = f"--workdir={second}"
    assert realm(*command, "--format=trec", steps, f"--without={without}").code == 0
    config = config_lib.from_json((second / "config.json").read_text(), second)
    kept = open_inputs(config).questions
    first = tiny.questions[0].text  # asked again of other passages
    assert [q.text for q in kept] == [q.text for q in tiny.questions if q.text != first]
    config_keys = json.loads((second / "config.json").read_text())["corpus"]
    more = realm(*command, "--config.stages.qa.steps=2")  # format and excluded questions are kept
    assert more.code == 0, more.err
    assert json.loads((second / "config.json").read_text())["corpus"] == config_keys


def test_config_keys_of_questions_hold_without_their_flags(realm, pretrained, tiny, tmp_path):
    workdir, path, without = tmp_path / "run", tmp_path / "questions.tsv", tmp_path / "without.tsv"
    shutil.copytree(pretrained, workdir)
    path.write_text(written("trec", tiny.questions))
    without.write_text(written("trec", tiny.questions[:1]))
    command = ["finetune", f"--workdir={workdir}", f"--questions={path}"]
    keys = {"questions_format": "trec", "questions_part": "all", "questions_without": str(without)}
    overrides = [f"--config.corpus.{key}={value}" for key, value in keys.items()]
    assert realm(*command, *overrides, f"--config.stages.qa.steps={TUNED}").code == 0
    assert keys.items() <= json.loads((workdir / "config.json").read_text())["corpus"].items()


@pytest.mark.parametrize("flag", ["questions", "format", "part", "without"])
def test_a_flag_together_with_its_config_key_is_refused(realm, pretrained, tmp_path, flag):
    key = "corpus.questions" if flag == "questions" else f"corpus.questions_{flag}"
    command = ["finetune", f"--workdir={pretrained}", "--questions=q", "--format=nq", "--part=dev"]
    both = realm(*command, "--without=d", f"--config.{key}=all")
    both.refused(f"{key} is given twice", f"--{flag} and --config.{key}", code=2)
