"""Runs that start from an encoder: as it is, and trained with every part of its form."""

import json
import shutil
import threading

import jax
import numpy as np
import pytest
from support.builder_thread import building
from support.finished_run import write_finished_run
from support.tiny_corpus import (
    TinyCorpus,
    tiny_config,
    vocabulary,
    write_tiny_corpus,
)
from support.tiny_encoder import write_tiny_encoder

import realm_jax
from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import ConfigError, MismatchError, Stopped
from realm_jax.interop import load
from realm_jax.interop.start_config import make_like
from realm_jax.interop.weights import open_weights, weights_of_run, write_weights
from realm_jax.models.embedder import null_score_of, temperature_of
from realm_jax.report.write import write_report
from realm_jax.serve.live_run import LiveRun
from realm_jax.storage import commit
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.storage.leases import leased
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.prepare import prepare
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.run import finetune
from realm_jax.trainer.run import run as train

FORM = {
    "pooling": "mean",
    "projection": "12:tanh 8",
    "normalise": True,
    "passage_row": "single",
    "query_prompt": "what is",
    "passage_prompt": "the",
    "temperature": 0.05,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def encoder(tiny, tmp_path_factory):
    """A folder with an encoder of random weights."""
    folder = tmp_path_factory.mktemp("encoder") / "W"
    write_tiny_encoder(folder, tiny.folder.parent / "vocab.txt", FORM)
    return folder


def started(tiny, encoder, **changes):
    """The config of a run that starts from the encoder."""
    config = tiny_config(tiny.folder, **changes).copy_and_resolve_references()
    config.unlock()
    config.model.update(start=str(encoder), like_start=True, layers=1)
    make_like(config, open_weights(encoder).sizes, ())
    config.lock()
    return config


def finished(workdir, tiny, encoder, **changes):
    """The folder of a run that starts from the encoder, trained and built in this process."""
    config = started(tiny, encoder, **changes)
    train(str(workdir), config, threading.Event(), lambda: building(workdir))
    return RunDir(str(workdir))


@pytest.fixture(scope="module")
def as_is(tiny, encoder, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("as_is") / "run"
    return finished(workdir, tiny, encoder, stages__realm__publish_start=True)


def test_an_encoder_as_it_is_can_be_asked_and_embeds_with_its_prompts(as_is, tiny, encoder):
    run, words = realm_jax.open(as_is.workdir), tiny.store.vocabulary
    texts = ["of ora", "river in ube"]
    model = load(str(encoder))
    for kind, prompt in (("query", "what is"), ("passage", "the")):
        found = run.embed(texts, kind=kind)
        for text, vector in zip(texts, found, strict=True):
            pieces = words.pieces([f"{prompt} {text}"])[0][0].tolist()
            ids = np.array([[words.cls, *pieces, words.sep]], np.int32)
            expected = model.embed(ids, ids > -1, 0 * ids)[0]
            np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)
    best = run.retrieve("river in ube", k=3)
    answer = run.ask("river in ube", k=3)
    assert [hit.id for hit in best] == [passage.id for passage in answer.passages]
    assert "finds passages" in repr(run)
    assert not answer.answer and sum(p.p_z for p in answer.passages) == pytest.approx(1)
    scores = np.array([hit.score for hit in best]) / 0.05
    p_z = np.exp(scores - scores.max())
    np.testing.assert_allclose([p.p_z for p in answer.passages], p_z / p_z.sum(), rtol=1e-3)


def test_a_server_of_an_encoder_shows_no_answer_from_memory_and_no_blanks(as_is):
    live = LiveRun.open(str(as_is.workdir))
    reply = live.ask("river in ube")
    assert (reply["answer"], reply["closed_book"], live.examples) == ("", None, [])
    assert reply["passages"]


def test_a_corpus_without_held_out_sentences_is_reported(tiny, encoder, tmp_path):
    texts = [("the river", ["what is in the river?"]), ("the tower", ["where is it?"])]  # no span
    write_passages(tmp_path / "two", texts, tiny.folder.parent / "vocab.txt")
    store = PassageStore.open(tmp_path / "two")
    two = TinyCorpus(tmp_path / "two", store, mark_spans(store), [])
    run = finished(tmp_path / "run", two, encoder, stages__realm__publish_start=True)
    write_report(run.workdir)
    assert json.loads(run.report.read_text())["baselines"] == {"k": 5}


def test_its_reader_has_the_transformer_of_the_encoder(as_is):
    export = read_export(as_is)
    assert (export.step, export.index_step) == (0, 0)
    embedder, reader = (export.networks[name]["bert"] for name in ("embedder", "reader"))
    jax.tree.map(np.testing.assert_array_equal, embedder, reader)


def test_a_second_start_of_a_finished_run_changes_nothing(as_is, tiny, encoder):
    before = commit.read_manifest(as_is.published_index / step_name(0))
    finished(as_is.workdir, tiny, encoder, stages__realm__publish_start=True)
    assert commit.read_manifest(as_is.published_index / step_name(0)) == before
    assert commit.latest(as_is.snapshots) == commit.latest(as_is.export) == 0


def test_an_ended_trainer_leases_no_index(as_is):
    """Before, `realm index --once` could not replace the index for ten minutes."""
    assert leased(as_is, PUBLISHED_INDEX) == set()


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A run with a reader for questions, and a folder with its exported weights."""
    folder, config = tmp_path_factory.mktemp("trained"), tiny_config(tiny.folder, model__layers=1)
    run = write_finished_run(folder / "run", tiny, config)
    networks, pieces = read_export(run).networks, tiny.folder.parent / "vocab.txt"
    weights = weights_of_run(networks, config.model, config.lengths.answer, pieces)
    write_weights(folder / "W", weights)
    return run, folder / "W"


@pytest.mark.slow
def test_a_start_with_a_reader_for_questions_is_fine_tuned_from_it_and_keeps_that(
    tiny, trained, tmp_path
):
    """Before, a second start replaced the fine-tuned networks by those of the start."""
    original, start = read_export(trained[0]).networks, trained[1]
    as_it_is = {"stages__realm__publish_start": True}
    run = finished(tmp_path / "run", tiny, start, **as_it_is)
    questions = write_questions(tmp_path, tiny, 2)
    tuning = {"stages__qa__steps": 1, "stages__qa__learning_rate": 1e-4}
    config = started(tiny, start, corpus__questions=str(questions), **as_it_is, **tuning)
    number = finetune(run.workdir, config, threading.Event())
    tuned = read_export(run).networks
    for name, other in (("question_reader", "reader"), ("question_embedder", "embedder")):
        words = [of["bert"]["word"] for of in (tuned[name], original[name], original[other])]
        moved, apart = (np.abs(words[0] - before).mean() for before in words[1:])
        assert 0 < moved < apart / 10
    finished(tmp_path / "run", tiny, start, **as_it_is)
    assert commit.latest(run.export) == number


@pytest.mark.slow
def test_a_start_with_a_reader_for_questions_answers_as_the_run_that_trained_it(
    tiny, trained, tmp_path
):
    trained, start = trained
    started = finished(tmp_path / "run", tiny, start, stages__realm__publish_start=True)
    questions = [question.text for question in tiny.questions[:4]]
    runs = (realm_jax.open(str(run.workdir)) for run in (trained, started))
    expected, found = (run.ask_all(questions) for run in runs)
    assert [answer.answer for answer in found] == [answer.answer for answer in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.answer and one.probability == pytest.approx(other.probability, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_a_trained_embedder_is_kept_only_if_retrieval_is_useful(tiny, encoder, tmp_path, kept):
    changes = {"stages__realm__steps": 2, "stages__realm__least_utility": -1e9 if kept else 1e9}
    run = finished(tmp_path / "run", tiny, encoder, **changes)
    last = [json.loads(line) for line in (run.logs / "realm.jsonl").read_text().splitlines()][-1]
    assert last["embedder_kept"] == kept and last["step"] == 2
    first, final = (read_snapshot(run.snapshots / step_name(step)).params for step in (0, 2))
    exported = read_export(run).networks
    jax.tree.map(np.testing.assert_array_equal, exported["embedder"], final["embedder"])
    same = jax.tree.map(np.array_equal, exported["embedder"], first["embedder"])
    assert all(jax.tree.leaves(same)) == (not kept)
    reader = jax.tree.map(np.array_equal, exported["reader"], first["reader"])
    assert not all(jax.tree.leaves(reader))  # the reader keeps what it has learned


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_stage_ends_at_an_evaluation_with_too_little_utility(
    tiny, encoder, tmp_path, monkeypatch, killed
):
    """Also if it was killed at the evaluation: no checkpoint of that step exists before it."""
    utility = {"stages__realm__least_utility": 1e9, "stages__realm__stop_utility": 1e9}
    changes = {"stages__realm__steps": 6, "stages__realm__evaluate_every": 2, **utility}
    changes |= {"checkpoint__every": 2, "refresh__every": 2}
    if killed:
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(RealmStage, "evaluate", stopped)
            finished(tmp_path / "run", tiny, encoder, **changes)
        assert commit.latest(RunDir(tmp_path / "run").checkpoints("realm")) is None
    run = finished(tmp_path / "run", tiny, encoder, **changes)
    records = [json.loads(line) for line in (run.logs / "realm.jsonl").read_text().splitlines()]
    assert [one["step"] for one in records if "held_out_retrieval_utility" in one] == [2, 6]
    assert (records[-1]["trained_steps"], records[-1]["embedder_kept"]) == (2, 0)
    assert commit.latest(run.checkpoints("realm")) == commit.latest(run.export) == 6
    first, exported = read_snapshot(run.snapshots / step_name(0)).params, read_export(run).networks
    jax.tree.map(np.testing.assert_array_equal, exported["embedder"], first["embedder"])
    reader = jax.tree.map(np.array_equal, exported["reader"], first["reader"])
    assert not all(jax.tree.leaves(reader))  # the reader keeps what it has learned


@pytest.mark.slow
@pytest.mark.parametrize("stage", [IctStage, RealmStage])
def test_a_penalty_keeps_vectors_near_those_of_the_encoder(
    tiny, encoder, tmp_path, monkeypatch, stage
):
    """After a resume, the encoder is still that from before the stage."""
    name = stage.name
    changes = {"stages__realm__steps": 0, "stages__realm__publish_start": True}
    changes |= {f"stages__{name}__steps": 4, f"stages__{name}__learning_rate": 1e-2}
    changes |= {"model__dropout": 0.0, "checkpoint__every": 2, "report__every": 1}
    distances, embedders = {}, {}
    for kind, penalty in (("free", 1e-9), ("near", 100.0), ("resumed", 100.0)):
        run = RunDir(tmp_path / kind)
        changes[f"stages__{name}__distance_penalty"] = penalty
        if kind == "resumed":
            with monkeypatch.context() as patch, pytest.raises(Stopped):
                patch.setattr(stage, "evaluate", stopped)
                finished(run.workdir, tiny, encoder, **changes)
            assert commit.latest(run.checkpoints(name)) == 2
        finished(run.workdir, tiny, encoder, **changes)
        records = [
            json.loads(line) for line in (run.logs / f"{name}.jsonl").read_text().splitlines()
        ]
        distances[kind] = {one["step"]: one["distance"] for one in records if "distance" in one}
        embedders[kind] = read_export(run).networks["embedder"]
    assert distances["near"][1] == pytest.approx(0.0, abs=1e-6)  # no step has changed it yet
    assert distances["near"][4] < distances["free"][4] / 2
    assert distances["resumed"] == distances["near"]
    jax.tree.map(np.testing.assert_array_equal, embedders["resumed"], embedders["near"])


def write_questions(folder, tiny, count):
    """A file with the first questions."""
    lines = ({"question": q.text, "answers": list(q.answers)} for q in tiny.questions[:count])
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder / "questions.jsonl"


def stopped(stage, step, *_):
    raise Stopped(stage.name, step)


@pytest.mark.slow
def test_reader_ict_realm_and_fine_tuning_train_every_part_of_the_form(tiny, encoder, tmp_path):
    questions = write_questions(tmp_path, tiny, 8)
    steps = {f"stages__{stage}__steps": 2 for stage in ("reader", "ict", "realm", "qa")}
    learned = {"model__learn_temperature": True, "model__null_score": "learned"}
    more = {"model__null_value": 0.5, "corpus__questions": str(questions)}
    run = finished(tmp_path / "run", tiny, encoder, **steps, **learned, **more)
    export = read_export(run)
    first = read_snapshot(run.snapshots / step_name(0)).params["embedder"]
    config = realm_jax.open(run.workdir).config
    for name in ("embedder", "question_embedder"):
        trained = export.networks[name]
        assert float(temperature_of(config.model, trained)) != pytest.approx(0.05, rel=1e-4)
        for part in ("dense_0", "dense_1"):
            assert not np.array_equal(trained[part]["kernel"], first[part]["kernel"])
    null = float(null_score_of(config.model, export.networks["embedder"]))
    assert null != pytest.approx(0.5 / 0.05, rel=1e-4)
    opened = realm_jax.open(run.workdir)
    assert opened.ask(tiny.questions[0].text).answer
    filled = opened.fill("the capital of ora is [MASK].")
    assert sum(passage.p_z for passage in filled.passages) == pytest.approx(1, rel=1e-4)


def test_a_bert_without_an_embedder_is_not_published_as_one(tiny, encoder, tmp_path):
    """`save_pretrained` of the transformer alone leaves out modules.json."""
    bert = shutil.copytree(encoder, tmp_path / "bert")
    (bert / "modules.json").unlink()
    described = json.loads((bert / "config.json").read_text())
    ours = ("realm", "retriever_")  # keys that others do not write
    kept = {key: value for key, value in described.items() if not key.startswith(ours)}
    (bert / "config.json").write_text(json.dumps(kept))
    as_it_is = {"stages__realm__publish_start": True}
    refused = r"norm, pooler, projection would be random[\s\S]*model.embedding=16"
    with pytest.raises(ConfigError, match=refused):
        prepare(str(tmp_path / "run"), started(tiny, bert, **as_it_is))
    form = {"pooling": "mean", "projection": "none", "embedding": 16, "normalise": True}
    changes = as_it_is | {f"model__{key}": value for key, value in form.items()}
    prepare(str(tmp_path / "run"), started(tiny, bert, **changes))


def test_a_corpus_with_another_vocabulary_is_refused(tiny, encoder, tmp_path):
    pieces = vocabulary()
    pieces[-2:] = pieces[:-3:-1]
    (encoder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    try:
        with pytest.raises(MismatchError, match=r"another vocabulary(.|\n)*--vocab="):
            finished(tmp_path / "run", tiny, encoder, stages__realm__publish_start=True)
    finally:
        (encoder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary()))
