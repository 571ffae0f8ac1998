"""`--dry-run` prints the plan, fails with the errors of the real command, and writes nothing."""

import shutil
import sys
from pathlib import Path

import pytest
from support.finished_run import STEP, random_params
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.snapshots import publish_snapshot
from realm_jax.storage.layout import RunDir, step_name


def modified_times(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}


@pytest.mark.parametrize("verb", ["run", "train"])
def test_the_plan_of_a_run_is_printed_and_nothing_is_written(
    realm, tmp_path, config_file, tiny, verb
):
    workdir = tmp_path / "w"
    command = [verb, f"--config={config_file}", f"--workdir={workdir}", "--dry-run"]
    report = realm(*command, "--json").json()
    assert not workdir.exists()
    assert report["passages"] == len(tiny.store)
    assert report["stages"] == [
        {"stage": "ict", "steps": 2, "batch": 8, "done": 0},
        {"stage": "realm", "steps": 4, "batch": 8, "done": 0},
    ]
    assert report["free_bytes"] > 0
    output = realm(*command).out
    for text in (
        "ict",
        "2 steps of 8 queries",
        "every 2 steps",
        str(workdir),
        "nothing was written",
    ):
        assert text in output


def test_estimated_sizes_are_within_a_factor_of_two(realm, finished, untuned, config_file):
    command = ["run", f"--config={config_file}", f"--workdir={finished.workdir}", "--dry-run"]
    estimated = realm(*command, "--json").json()["bytes"]
    folders = {
        "published_index": finished.published_index / step_name(STEP),
        "export": untuned.export / step_name(STEP),
    }
    copies = {"published_index": 3, "export": 1}
    for name, folder in folders.items():
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        size = copies[name] * sum(path.stat().st_size for path in files)
        assert size / 2 < estimated[name] < size * 2, name


@pytest.mark.parametrize("verb", ["run", "train"])
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("corpus.knowledge=nowhere", ["no corpus in this folder", "nowhere"]),
        ("mesh.model=3", ["mesh"]),
        ("model.start=nowhere", ["nowhere"]),
        ("stages.ict.batch=7", ["stages.ict.batch"]),
    ],
)
def test_inputs_are_checked_with_the_errors_of_the_real_command(
    realm, tmp_path, config_file, verb, override, words
):
    command = [verb, f"--config={config_file}", f"--workdir={tmp_path / 'w'}"]
    command += [f"--config.{override}"]
    dry = realm(*command, "--dry-run")
    dry.refused(*words)
    assert not (tmp_path / "w").exists()
    assert realm(*command).err == dry.err


def test_a_metric_writer_without_its_package_is_refused(realm, tmp_path, config_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    command = ["run", f"--config={config_file}", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    result = realm(*command, "--config.report.writers=wandb")
    result.refused("wandb is not installed", "config.report.writers", "pip install")


def test_a_workdir_that_cannot_be_used_is_refused(realm, finished, config_file):
    before = modified_times(finished.root)
    command = ["run", f"--config={config_file}", "--dry-run"]
    other_model = [f"--workdir={finished.workdir}", "--config.model.hidden=32"]
    realm(*command, *other_model).refused("another model")
    realm(*command, f"--workdir={config_file}/w").refused(
        "the folder cannot be written", "a file", "choose another folder"
    )
    assert modified_times(finished.root) == before


def test_finetune_without_pre_training_is_refused(realm, finished, tmp_path):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    command = ["finetune", f"--workdir={finished.workdir}", f"--questions={questions}", "--dry-run"]
    before = modified_times(finished.root)
    realm(*command).refused("pre-training is not finished", "step 4", "realm run")
    assert modified_times(finished.root) == before


def test_index_prints_what_it_would_build_or_wait_for(realm, tmp_path, tiny):
    command = ["index", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    assert "wait for the first snapshot" in realm(*command).out
    assert not (tmp_path / "w").exists()
    from realm_jax import config as config_lib

    run, config = RunDir(tmp_path / "w"), tiny_config(tiny.folder)
    params = random_params(config, tiny.store.vocabulary.size)
    publish_snapshot(run, 2, {"embedder": params["embedder"]}, config_lib.to_json(config), {})
    before = modified_times(run.root)
    report = realm(*command, "--json").json()
    assert (report["snapshot"], report["published"]) == (2, False)
    assert report["passages"] == len(tiny.store)
    assert modified_times(run.root) == before


def test_corpus_build_reads_the_first_document(realm, tmp_path, notes, vocabulary):
    out = tmp_path / "out"
    command = ["corpus", "build", "--format=text", f"--out={out}", "--dry-run"]
    report = realm(*command, f"--input={notes}", f"--vocab={vocabulary}", "--json").json()
    assert (report["files"], report["first_document"]) == (3, "Lima")
    assert report["input_bytes"] == sum(path.stat().st_size for path in notes.iterdir())
    assert report["documents_done"] == 0
    realm(*command, f"--input={notes}", "--vocab=nowhere").refused("no vocabulary file")
    realm(*command, f"--input={tmp_path / 'none'}").refused("no input file")
    (notes / "Asti.txt").write_bytes(b"\xff\xfe\xff")  # half a character of UTF-16
    assert realm(*command, f"--input={notes / 'Asti.txt'}").code == 1
    assert not list(tmp_path.glob("out*"))


def test_tag_annotate_prints_its_shards(realm, tmp_path, tiny):
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny.folder, corpus)
    command = ["tag", "annotate", f"--corpus={corpus}", "--shard=16", "--dry-run"]
    before = modified_times(corpus)
    report = realm(*command, "--json").json()
    assert (report["passages"], report["shards"], report["shards_done"]) == (40, 3, 0)
    assert modified_times(corpus) == before
    realm(*command, f"--out={corpus / 'spans'}").refused("already exist")
