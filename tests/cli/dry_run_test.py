"""--dry-run: says what would be done, refuses what the command itself would, and writes nothing."""

import shutil
import sys
from pathlib import Path

import pytest
from support.finished_run import STEP, random_params
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.snapshots import publish_snapshot
from realm_jax.storage.layout import RunDir, step_name


def seen(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}


@pytest.mark.parametrize("verb", ["run", "train"])
def test_a_run_is_laid_out_and_nothing_is_made(realm, tmp_path, config_file, tiny, verb):
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
    said = realm(*command).out
    for word in ("ict", "2 steps of 8 queries", "every 2 steps", str(workdir), "nothing was written"):
        assert word in said


def test_sizes_are_about_what_a_finished_run_has(realm, finished, untuned, config_file):
    command = ["run", f"--config={config_file}", f"--workdir={finished.workdir}", "--dry-run"]
    about = realm(*command, "--json").json()["bytes"]
    folders = {
        "published_index": finished.published_index / step_name(STEP),
        "export": untuned.export / step_name(STEP),
    }
    kept = {"published_index": 3, "export": 1}
    for name, folder in folders.items():
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        held = kept[name] * sum(path.stat().st_size for path in files)
        assert held / 2 < about[name] < held * 2, name


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
def test_inputs_are_checked(realm, tmp_path, config_file, verb, override, words):
    command = [verb, f"--config={config_file}", f"--workdir={tmp_path / 'w'}"]
    command += [f"--config.{override}"]
    dry = realm(*command, "--dry-run")
    dry.refused(*words)
    assert not (tmp_path / "w").exists()
    assert realm(*command).err == dry.err


def test_a_writer_whose_package_is_missing_is_refused(realm, tmp_path, config_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    command = ["run", f"--config={config_file}", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    result = realm(*command, "--config.report.writers=wandb")
    result.refused("wandb is not installed", "config.report.writers", "pip install")


def test_a_workdir_of_another_model_or_under_a_file_is_refused(realm, finished, config_file):
    before = seen(finished.root)
    command = ["run", f"--config={config_file}", "--dry-run"]
    of_another = [f"--workdir={finished.workdir}", "--config.model.hidden=32"]
    realm(*command, *of_another).refused("another model")
    realm(*command, f"--workdir={config_file}/w").refused("the folder cannot be written", "a file")
    assert seen(finished.root) == before


def test_finetune_names_what_is_missing_before_it_starts(realm, finished, tmp_path):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    command = ["finetune", f"--workdir={finished.workdir}", f"--questions={questions}", "--dry-run"]
    before = seen(finished.root)
    realm(*command).refused("pre-training is not finished", "step 4", "realm run")
    assert seen(finished.root) == before


def test_index_waits_or_says_what_it_would_build(realm, tmp_path, tiny):
    command = ["index", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    assert "wait for the first snapshot" in realm(*command).out
    assert not (tmp_path / "w").exists()
    from realm_jax import config as config_lib

    run, config = RunDir(tmp_path / "w"), tiny_config(tiny.folder)
    networks = random_params(config, tiny.store.vocabulary.size)
    publish_snapshot(run, 2, {"embedder": networks["embedder"]}, config_lib.to_json(config), {})
    before = seen(run.root)
    report = realm(*command, "--json").json()
    assert (report["snapshot"], report["published"]) == (2, False)
    assert report["passages"] == len(tiny.store)
    assert seen(run.root) == before


def test_corpus_build_reads_the_first_document(realm, tmp_path, notes, vocabulary):
    out = tmp_path / "out"
    command = ["corpus", "build", "--format=text", f"--out={out}", "--dry-run"]
    report = realm(*command, f"--input={notes}", f"--vocab={vocabulary}", "--json").json()
    assert (report["files"], report["first_document"]) == (3, "Lima")
    assert report["input_bytes"] == sum(path.stat().st_size for path in notes.iterdir())
    assert report["documents_done"] == 0
    realm(*command, f"--input={notes}", "--vocab=nowhere").refused("no vocabulary file")
    realm(*command, f"--input={tmp_path / 'none'}").refused("no input file")
    (notes / "Asti.txt").write_bytes(b"\xff")
    assert realm(*command, f"--input={notes / 'Asti.txt'}").code == 1
    assert not list(tmp_path.glob("out*"))


def test_tag_annotate_counts_its_shards(realm, tmp_path, tiny):
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny.folder, corpus)
    command = ["tag", "annotate", f"--corpus={corpus}", "--shard=16", "--dry-run"]
    before = seen(corpus)
    report = realm(*command, "--json").json()
    assert (report["passages"], report["shards"], report["shards_done"]) == (40, 3, 0)
    assert seen(corpus) == before
    realm(*command, f"--out={corpus / 'spans'}").refused("exist already")
