"""REALM pre-training with a real index builder: a resumed run equals an uninterrupted one."""

import json
import shutil
import threading

import jax
import numpy as np
import pytest
from support.builder_thread import building
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.params import load_parameters
from realm_jax.artifacts.required import required_indexes
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.cli.jobs import run_both
from realm_jax.errors import InputError, MismatchError, Stopped
from realm_jax.index_builder import run as index_builder
from realm_jax.storage import commit
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import PARAMETERS, RunDir, step_name
from realm_jax.storage.locks import job_lock
from realm_jax.trainer import run as trainer
from realm_jax.trainer.init_params import pretrained_reader

STEPS, POLL = 6, 0.02
TIMEOUT = 300.0


def config_of(tiny, fitted=False):
    """`fitted` compiles several batch shapes, as by default, which takes most of a minute."""
    steps = {"stages__realm__steps": STEPS, "checkpoint__every": 3}
    return tiny_config(tiny.folder, model__layers=1, lengths__fitted=fitted, **steps)


def changed(config, **changes):
    """The config with other values; `changes` are dotted keys with `__` for dots."""
    other = config.copy_and_resolve_references()
    other.unlock()
    for name, value in changes.items():
        config_lib.set_key(other, name.replace("__", "."), str(value))
    return other.lock()


def run_with_builder(workdir, config):
    """Runs both jobs until the run has ended, the builder in a thread."""
    trainer.run(str(workdir), config, threading.Event(), lambda: building(workdir))


def stop_while_waiting(workdir, config, built):
    """Builds only these indexes, and stops the trainer while it waits for the next one."""
    run, stop, stopped = RunDir(workdir), threading.Event(), []

    def train():
        try:
            trainer.run(str(workdir), config, stop)
        except Stopped as error:
            stopped.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    for step in built:
        folder = wait_for(run.snapshots, step, thread)
        index_builder.refresh(run, read_snapshot(folder), threading.Event())
    wait_for(run.snapshots, built[-1] + config.refresh.every, thread)
    stop.set()
    thread.join(TIMEOUT)
    [error] = stopped
    return error


def wait_for(parent, step, thread):
    folder = parent / step_name(step)
    while not commit.is_published(folder):
        assert thread.is_alive()
        thread.join(POLL)
    return folder


def checkpoint(workdir):
    folder = RunDir(workdir).checkpoints("realm") / step_name(STEPS)
    swaps = commit.read_manifest(folder)["swaps"]
    return swaps, load_parameters(folder / PARAMETERS), load_parameters(folder / "optimizer")


@pytest.fixture(scope="module")
def uninterrupted(tiny, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("uninterrupted")
    run_with_builder(workdir, config_of(tiny))
    return workdir


def test_a_run_swaps_at_every_snapshot_and_exports(uninterrupted):
    swaps, _, _ = checkpoint(uninterrupted)
    assert swaps == [[0, 0], [2, 2], [4, 4]]
    export = read_export(RunDir(uninterrupted))
    assert (export.step, export.index_step) == (STEPS, STEPS)
    assert sorted(export.networks) == ["embedder", "reader"]


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    tiny, uninterrupted, tmp_path
):
    """Killed after step 4, with a checkpoint of step 3."""
    config = config_of(tiny)
    stop_while_waiting(tmp_path, config, built=[0, 2])
    shutil.rmtree(RunDir(tmp_path).checkpoints("realm") / step_name(4))
    run_with_builder(tmp_path, config)
    jax.tree.map(np.testing.assert_array_equal, checkpoint(tmp_path), checkpoint(uninterrupted))


@pytest.mark.slow
def test_a_stopped_and_resumed_run_with_fitted_lengths_equals_an_uninterrupted_one(tiny, tmp_path):
    """Stopped at step 4, while it waits for the index of that step."""
    config, stopped, whole = config_of(tiny, fitted=True), tmp_path / "stopped", tmp_path / "whole"
    error = stop_while_waiting(stopped, config, built=[0, 2])
    assert (error.stage, error.step) == ("realm", 4)
    for workdir in (stopped, whole):
        run_with_builder(workdir, config)
    jax.tree.map(np.testing.assert_array_equal, checkpoint(stopped), checkpoint(whole))


def test_a_finished_run_is_not_changed_by_a_rerun(tiny, uninterrupted):
    before = checkpoint(uninterrupted)
    trainer.run(str(uninterrupted), config_of(tiny), threading.Event())
    jax.tree.map(np.testing.assert_array_equal, checkpoint(uninterrupted), before)


def test_a_rerun_publishes_a_lost_snapshot_and_its_index(tiny, uninterrupted, tmp_path):
    run, last = RunDir(tmp_path / "run"), step_name(STEPS)
    shutil.copytree(uninterrupted, run.root)
    for parent in (run.published_index, run.snapshots):
        shutil.rmtree(parent / last)
    run_with_builder(run.root, config_of(tiny))
    assert commit.is_published(run.published_index / last)
    snapshot = read_snapshot(run.snapshots / last)
    original = read_snapshot(RunDir(uninterrupted).snapshots / last)
    jax.tree.map(np.testing.assert_array_equal, snapshot.params, original.params)


def test_fewer_steps_than_already_trained_are_refused(tiny, uninterrupted):
    before = RunDir(uninterrupted).config.read_bytes()
    shorter = changed(config_of(tiny), stages__realm__steps=STEPS - 2)
    with pytest.raises(InputError, match="for more steps than the config asks for"):
        trainer.run(str(uninterrupted), shorter, threading.Event())
    assert RunDir(uninterrupted).config.read_bytes() == before


@pytest.mark.slow
def test_a_run_cannot_end_where_it_was_stopped_and_the_fix_ends_one_step_later(tiny, tmp_path):
    config = config_of(tiny)
    assert stop_while_waiting(tmp_path, config, built=[0, 2]).step == 4
    with pytest.raises(InputError, match="stopped at this step") as error:
        run_with_builder(tmp_path, changed(config, stages__realm__steps=4))
    assert error.value.fix == "--config.stages.realm.steps=5, or more"
    with pytest.raises(InputError, match="for more steps") as error:
        trainer.run(str(tmp_path), changed(config, stages__realm__steps=3), threading.Event())
    assert error.value.fix == "--config.stages.realm.steps=5, or more"
    run_with_builder(tmp_path, changed(config, stages__realm__steps=5))
    assert read_export(RunDir(tmp_path)).index_step == 5


def test_a_trainer_that_waits_for_the_lock_writes_nothing(tiny, uninterrupted):
    run, stop = RunDir(uninterrupted), threading.Event()
    before = run.config.read_bytes()
    stop.set()
    with job_lock(run, trainer.JOB, threading.Event()), pytest.raises(Stopped):
        run_both(str(uninterrupted), changed(config_of(tiny), stages__realm__steps=STEPS + 2), stop)
    assert run.config.read_bytes() == before
    assert run.end_marker.exists()


def test_indexes_of_checkpoints_and_export_are_required(tiny, uninterrupted, tmp_path):
    """Checkpoints 3 and 6 use indexes 2 and 4; in sync mode, 3 also needs all later indexes."""
    sync = config_of(tiny).refresh
    asynchronous = changed(config_of(tiny), refresh__mode="async").refresh
    assert required_indexes(RunDir(uninterrupted), asynchronous) == {2, 4, 6}
    run = RunDir(tmp_path / "run")
    shutil.copytree(uninterrupted, run.root)
    shutil.rmtree(run.export)
    assert required_indexes(run, asynchronous) == {2, 4}
    shutil.rmtree(run.checkpoints("realm") / step_name(STEPS))
    assert required_indexes(run, asynchronous) == {2, 4}  # the swap to 4 is repeated
    assert required_indexes(run, sync) == {2, 4, 6}


@pytest.fixture
def questions(tiny, tmp_path):
    lines = [
        json.dumps({"question": q.text, "answers": q.answers, "evidence": q.evidence})
        for q in tiny.questions
    ]
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "train.jsonl").write_text("\n".join(lines))
    return tmp_path / "questions"


@pytest.mark.slow
def test_fine_tuning_starts_from_the_params_of_each_stage(tiny, tmp_path, questions, caplog):
    """At learning rate 0, it exports the span head of stage reader and the reader of stage realm.

    After further pre-training, the export has the newer params instead of the earlier fine-tuning.
    """
    steps = {"stages__reader__steps": 2, "stages__realm__steps": 2, "stages__qa__steps": 1}
    config = tiny_config(tiny.folder, model__layers=1, **steps)
    run_with_builder(tmp_path / "run", config)
    tuned = changed(config, corpus__questions=questions, stages__qa__learning_rate=0.0)
    trainer.finetune(str(tmp_path / "run"), tuned, threading.Event())
    run = RunDir(tmp_path / "run")
    assert last_beat(run, trainer.JOB)["stage"] == "done"
    networks = read_export(run).networks
    reader, realm = (
        load_parameters(run.checkpoints(stage) / step_name(2) / PARAMETERS)
        for stage in ("reader", "realm")
    )
    jax.tree.map(np.testing.assert_array_equal, networks["span_head"], reader["span_head"])
    jax.tree.map(np.testing.assert_array_equal, networks["question_reader"], realm["reader"])
    jax.tree.map(np.testing.assert_array_equal, networks["question_embedder"], realm["embedder"])
    run_with_builder(tmp_path / "run", changed(tuned, stages__realm__steps=4))
    export = read_export(run)
    assert (export.step, export.index_step) == (5, 4)
    assert "fine-tuning starts again" in caplog.text
    realm = load_parameters(run.checkpoints("realm") / step_name(4) / PARAMETERS)
    networks = export.networks
    jax.tree.map(np.testing.assert_array_equal, networks["question_embedder"], realm["embedder"])


def test_fine_tuning_can_start_from_the_reader_of_another_run(tiny, uninterrupted, tmp_path):
    reader = pretrained_reader(str(uninterrupted), config_of(tiny))
    folder = RunDir(uninterrupted).checkpoints("realm") / step_name(STEPS)
    theirs = load_parameters(folder / PARAMETERS)["reader"]
    assert reader.keys() == {"reader"}
    jax.tree.map(np.testing.assert_array_equal, reader["reader"], theirs)
    expected, found = r"expected: +model.layers 2\n", r"found: +model.layers 1\n"
    with pytest.raises(MismatchError, match=rf"another model(.|\n)*{expected}(.|\n)*{found}"):
        pretrained_reader(str(uninterrupted), tiny_config(tiny.folder, model__layers=2))
    with pytest.raises(InputError, match="reader_from"):
        pretrained_reader(str(tmp_path), config_of(tiny))


def test_the_reader_of_an_unfinished_run_is_refused(tiny, uninterrupted, tmp_path):
    run = RunDir(tmp_path / "run")
    shutil.copytree(uninterrupted, run.root)
    longer = tiny_config(tiny.folder, model__layers=1, stages__realm__steps=STEPS + 1)
    run.config.write_text(config_lib.to_json(longer))
    with pytest.raises(InputError, match=rf"not finished[\s\S]*step {STEPS + 1}\n.*step {STEPS}\n"):
        pretrained_reader(str(run.workdir), config_of(tiny))
