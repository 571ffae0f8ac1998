"""A corpus that was built again after the index of its run: recognised, said, and repaired."""

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.finished_run import STEP, write_finished_run
from support.processes import RealmProcess, environment
from support.tiny_corpus import passages, tiny_config, write_tiny_corpus

from realm_jax.artifacts.published_index import open_index
from realm_jax.artifacts.run_config import newest_config
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.index_builder.shards import open_shards
from realm_jax.index_builder.work_order import WorkOrder, write_order
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.leases import Lease
from realm_jax.storage.logs import read_log
from realm_jax.text.vocabulary import write_vocabulary

QUESTION = "What is the capital of Ora?"
NEW = ("Zor", ["The capital of Zor is Zed."])
CHANGED = (passages(3)[2][0], ["The river in Ibo2 was the Obi in 1999."])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A finished run whose corpus is inside its folder, with the snapshot of its index."""
    folder = tmp_path_factory.mktemp("original") / "run"
    folder.mkdir()
    corpus = write_tiny_corpus(folder)
    steps = {"stages__realm__steps": STEP, "stages__qa__steps": STEP}
    config = tiny_config(corpus.folder, **steps)
    run = write_finished_run(folder, corpus, config, snapshot=True)
    files.write_bytes(run.vocabulary, (folder / "corpus" / "vocab.txt").read_bytes())
    return run


@pytest.fixture
def run(original, tmp_path):
    """A copy of the run, which a test may change."""
    shutil.copytree(original.workdir, tmp_path / "run")
    return RunDir(str(tmp_path / "run"))


def build_again(folder, change):
    """Deletes a corpus and builds it with other passages."""
    texts = passages(40)
    shutil.rmtree(folder)
    write_passages(Path(folder), change(texts), Path(folder.parent / "vocab.txt"))
    mark_spans(PassageStore.open(Path(folder)))


def newest_index(run):
    return open_index(run.published_index / step_name(commit.latest(run.published_index)))


def changed(texts):
    """One passage more, one less, and one with another text."""
    return [NEW, *texts[:2], CHANGED, *texts[3:-1]]


def test_each_verb_says_what_changed_and_the_named_command_repairs_it(realm, run):
    build_again(run.root / "corpus", changed)
    workdir = f"--workdir={run.workdir}"
    said = "1 added, 1 removed, 1 changed (40 before, 40 now)"
    refused = realm("ask", workdir, QUESTION)
    refused.refused("the knowledge corpus has changed", said, f"fix:      realm index {workdir}")
    checked = realm("check", run.workdir)
    checked.refused("NOT VALID", said, f"realm index {workdir}")
    assert "--repair" not in checked.err
    for verb in ("run", "train", "index"):
        planned = realm(verb, workdir, "--dry-run")
        assert planned.code == 0, planned.err
        assert said in planned.out
    fix = refused.err.split("fix:")[1].splitlines()[0]
    repaired = realm(*shlex.split(fix)[1:])
    assert repaired.code == 0, repaired.err
    assert realm("check", run.workdir).code == 0
    assert realm("ask", workdir, QUESTION).code == 0
    assert said not in realm("run", workdir, "--dry-run").out
    index = open_index(run.published_index / step_name(STEP))
    assert realm("index", workdir).code == 0  # nothing is left to build
    again = open_index(run.published_index / step_name(STEP))
    assert again.manifest == index.manifest


def test_a_corpus_with_another_vocabulary_is_refused_by_all_verbs(realm, run):
    corpus = run.root / "corpus"
    words = (corpus / "vocab.txt").read_text().splitlines()
    shutil.rmtree(corpus)
    write_vocabulary(Path(run.root / "vocab2.txt"), [*words[:-1], "##new"])
    write_passages(Path(corpus), passages(41), Path(run.root / "vocab2.txt"))
    mark_spans(PassageStore.open(Path(corpus)))
    workdir, fix = f"--workdir={run.workdir}", f"--vocab={run.vocabulary}"
    expected = ["another vocabulary than the run", fix]
    realm("ask", workdir, QUESTION).refused(*expected)
    realm("check", run.workdir).refused(*expected)
    for verb in ("run", "train", "index"):
        dry = realm(verb, workdir, "--dry-run")
        dry.refused(*expected)
    assert realm("index", workdir).err == dry.err


@pytest.mark.slow
def test_a_run_goes_on_with_a_changed_corpus(realm, config_file, tmp_path):
    """Both jobs, as processes: the finished run gets more steps after its corpus has changed."""
    corpus, run = write_tiny_corpus(tmp_path), RunDir(str(tmp_path / "w"))
    arguments = [f"--config={config_file}", f"--workdir={run.workdir}"]
    arguments += [f"--config.corpus.knowledge={corpus.folder}", "--config.refresh.wait_seconds=600"]
    settings = environment(tmp_path)
    RealmProcess(tmp_path, settings, "run", *arguments).wait(0)
    before = len(newest_index(run).rows)
    build_again(corpus.folder, lambda texts: [NEW, *texts])
    more = "--config.stages.realm.steps=8"
    planned = realm("run", *arguments, more, "--dry-run")
    assert "1 added, 0 removed, 0 changed" in planned.out
    said = RealmProcess(tmp_path, settings, "run", *arguments, more).wait(0)
    assert "the knowledge corpus has changed" in said
    assert len(newest_index(run).rows) == before + 1
    assert [record["step"] for record in read_log(run.logs / "realm.jsonl")][-1] == 8
    assert realm("check", run.workdir).code == 0


def test_an_index_that_a_trainer_uses_is_not_replaced(realm, run):
    build_again(run.root / "corpus", changed)
    before = open_index(run.published_index / step_name(STEP)).manifest
    lease = Lease(run, "trainer")
    lease.hold({"published_index": [STEP]})
    realm("index", f"--workdir={run.workdir}").refused("in use", "stop the trainer")
    assert open_index(run.published_index / step_name(STEP)).manifest == before
    lease.release()
    assert realm("index", f"--workdir={run.workdir}").code == 0
    assert realm("check", run.workdir).code == 0


def test_shards_of_the_earlier_corpus_are_not_used(realm, run):
    config = newest_config(run)
    order = WorkOrder(STEP, 1, config.builder.shard, "another corpus")
    write_order(run, order)
    with open_shards(run.shards(STEP), 40, config.model.embedding, "another corpus") as shards:
        shards.save(0, np.zeros((config.builder.shard, config.model.embedding), np.float32))
    build_again(run.root / "corpus", changed)
    assert realm("index", f"--workdir={run.workdir}").code == 0
    vectors = open_index(run.published_index / step_name(STEP)).vectors
    assert np.abs(vectors[: config.builder.shard]).sum(-1).all()


@pytest.mark.parametrize("verb", ["ask", "check", "index", "report", "eval"])
def test_a_copied_run_uses_the_corpus_inside_it(realm, run, tmp_path, verb):
    """The original is gone, as on another machine."""
    moved = tmp_path / "elsewhere" / "run"
    shutil.copytree(run.workdir, moved)
    shutil.rmtree(run.workdir)
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    rest = {"ask": [QUESTION], "eval": [f"--questions={questions}"]}.get(verb, [])
    result = realm(verb, moved if verb == "check" else f"--workdir={moved}", *rest)
    assert result.code == 0, result.err


@pytest.mark.parametrize("verb", ["ask", "check", "index", "run", "train"])
def test_a_corpus_that_was_moved_alone_is_given_by_an_override(realm, run, tmp_path, verb):
    shutil.move(run.root / "corpus", tmp_path / "corpus")
    rest = {"ask": [QUESTION], "run": ["--dry-run"], "train": ["--dry-run"]}.get(verb, [])
    command = [verb, run.workdir if verb == "check" else f"--workdir={run.workdir}", *rest]
    refused = realm(*command)
    refused.refused("no corpus in this folder", "--config.corpus.knowledge=FOLDER")
    result = realm(*command, f"--config.corpus.knowledge={tmp_path / 'corpus'}")
    assert result.code == 0, result.err


def test_a_setting_of_training_cannot_be_overridden_by_a_verb_that_reads(realm, run):
    command = ["ask", f"--workdir={run.workdir}", "--config.model.hidden=8", QUESTION]
    realm(*command).refused("config keys of paths", "model.hidden", "corpus.knowledge", code=2)
