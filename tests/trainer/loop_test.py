"""The training loop: resume, stop, a single trace, non-finite losses."""

import json
import re
import shutil
import sys
import threading
import time

import jax
import numpy as np
import pytest
from etils import epath
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.params import load_parameters
from realm_jax.artifacts.required import checkpoint_manifests
from realm_jax.errors import DamageError, InputError, MismatchError, RealmError, Stopped
from realm_jax.parallel.sharding import make_mesh
from realm_jax.storage import commit
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import PARAMETERS, RunDir, step_name
from realm_jax.storage.logs import read_log
from realm_jax.trainer import loop
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.loop import train
from realm_jax.trainer.nonfinite import REPLAYABLE, read_batch, write_batch
from realm_jax.trainer.publisher import NoPublisher
from realm_jax.trainer.replay import replay

STEPS = 4
DEVICES = 8
FOREIGN = b'{"stage": "ict", "step": 1, "batch": {"type": "os:stat_result", "parts": []}}'


class SlowPublisher(NoPublisher):
    """Snapshots become durable only in `wait`."""

    def __init__(self):
        self.written, self.durable = [], []

    def publish(self, step, parameters):
        self.written.append(step)

    def wait(self):
        self.durable = list(self.written)


class WatchedStage(IctStage):
    """Counts traces, records the built batches, and stops the run at an evaluation."""

    def __init__(self, config, store, stop):
        super().__init__(config, store, DEVICES)
        self.stop, self.traces, self.built = stop, 0, []

    def batch(self, step, *batch_rows):
        self.built.append(step)
        return super().batch(step, *batch_rows)

    def loss(self, networks, batch, key):
        self.traces += 1
        return super().loss(networks, batch, key)

    def evaluate(self, step, params, evaluation):
        self.stop.set()
        return {}


def config_of(tiny, **changes):
    changes = {"stages__ict__steps": STEPS, "model__layers": 1, **changes}
    return tiny_config(tiny.folder, **changes)


def run(workdir, tiny, stage=None, **changes):
    """Trains, and returns the stage; raises `Stopped` if the stage stopped the run."""
    config = config_of(tiny, **changes)
    stop = threading.Event()
    stage = (
        WatchedStage(config, tiny.store, stop)
        if stage is None
        else stage(config, tiny.store, DEVICES)
    )
    mesh = make_mesh(config.mesh)
    params = initial_params(config, stage.modules, {}, mesh)
    train(RunDir(workdir), config, stage, params, mesh, stop, NoPublisher())
    return stage


def saved(workdir, step):
    folder = RunDir(workdir).checkpoints("ict") / step_name(step)
    return load_parameters(folder / PARAMETERS), load_parameters(folder / "optimizer")


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tiny, tmp_path):
    run(tmp_path / "uninterrupted", tiny)
    with pytest.raises(Stopped, match="step 2"):
        run(tmp_path / "resumed", tiny, stages__ict__evaluate_every=2)
    assert commit.steps(RunDir(tmp_path / "resumed").checkpoints("ict")) == [2]
    resumed = run(tmp_path / "resumed", tiny)
    assert resumed.built == [2, 3]
    jax.tree.map(
        np.testing.assert_array_equal,
        saved(tmp_path / "resumed", STEPS),
        saved(tmp_path / "uninterrupted", STEPS),
    )
    before, after = saved(tmp_path / "resumed", 2), saved(tmp_path / "resumed", STEPS)
    assert not np.array_equal(
        before[0]["embedder"]["bert"]["word"], after[0]["embedder"]["bert"]["word"]
    )


@pytest.mark.slow
def test_the_seconds_of_a_stage_are_those_of_all_processes(tiny, tmp_path):
    class Timed(IctStage):
        def batch(self, step, *batch_rows):
            built.append(time.monotonic())
            return super().batch(step, *batch_rows)

    with pytest.raises(Stopped, match="step 2"):
        run(tmp_path, tiny, stages__ict__evaluate_every=2)
    [manifest] = checkpoint_manifests(RunDir(tmp_path), "ict")
    built, before = [], manifest["seconds"]
    run(tmp_path, tiny, Timed)
    assert before > 0 and built[-1] > built[0]
    measured = lambda: [  # noqa: E731
        line["seconds"]
        for line in read_log(RunDir(tmp_path).logs / "ict.jsonl")
        if "seconds" in line
    ]
    [whole] = measured()
    assert whole > before + built[-1] - built[0]
    built.clear()
    began = time.monotonic()
    run(tmp_path, tiny, Timed, stages__ict__steps=STEPS + 2)  # counts its own seconds only
    assert measured()[0] == whole and measured()[1] < time.monotonic() - began


def test_the_step_is_traced_once_and_each_batch_built_once(tiny, tmp_path):
    stage = run(tmp_path, tiny)
    assert stage.traces == 1
    assert stage.built == list(range(STEPS))


def test_snapshots_are_durable_before_the_checkpoint_of_their_step(tiny, tmp_path):
    config = config_of(tiny, checkpoint__every=1, checkpoint__keep=9)
    stage, publisher = IctStage(config, tiny.store, DEVICES), SlowPublisher()
    mesh = make_mesh(config.mesh)
    params = initial_params(config, stage.modules, {}, mesh)
    arguments = (RunDir(tmp_path), config, stage, params, mesh, threading.Event())
    train(*arguments, publisher, lambda step: {"durable": publisher.durable})
    manifests = checkpoint_manifests(arguments[0], "ict")
    saved = {manifest["step"]: manifest["durable"] for manifest in manifests}
    assert saved == {1: [0], 2: [0, 2], 3: [0, 2], 4: [0, 2, 4]}


def test_a_failed_evaluation_is_not_met_again_by_the_same_command(tiny, tmp_path):
    """The checkpoint of a step is saved before the evaluation of that step."""

    class Failing(IctStage):
        def evaluate(self, step, params, evaluation):
            if step == STEPS // 2:
                raise RealmError("the evaluation does not fit")
            return {}

    every = {"checkpoint__every": 2, "stages__ict__evaluate_every": 2}
    with pytest.raises(RealmError, match="does not fit"):
        run(tmp_path, tiny, Failing, **every)
    assert commit.steps(RunDir(tmp_path).checkpoints("ict")) == [2]
    run(tmp_path, tiny, Failing, **every)
    assert commit.latest(RunDir(tmp_path).checkpoints("ict")) == STEPS


def test_the_end_of_the_steps_ends_the_wait_of_a_batch(tiny, tmp_path):
    """The thread that builds batches may wait for an index that nobody builds any more."""

    class Waiting(IctStage):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.closed = threading.Event()

        def batch(self, step, *rows):
            if step == STEPS - 1:
                self.closed.wait()
            return super().batch(step, *rows)

        def evaluate(self, step, params, evaluation):
            raise RealmError("the steps end here")

        def close(self):
            self.closed.set()

    with pytest.raises(RealmError, match="end here"):
        run(tmp_path, tiny, Waiting, stages__ict__evaluate_every=2)
    assert "prefetch" not in [thread.name for thread in threading.enumerate()]


def test_a_finished_stage_is_restored_while_no_other_state_is_in_memory(
    tiny, tmp_path, monkeypatch
):
    run(tmp_path, tiny)
    restore, make, held = Checkpoints.restore, initial_params, []

    def made(*arguments):
        held.append(make(*arguments))
        return held[-1]

    def restored(*arguments):
        assert held == [{}]
        held.append("restored")
        return restore(*arguments)

    monkeypatch.setattr(sys.modules[__name__], "initial_params", made)
    monkeypatch.setattr(Checkpoints, "restore", restored)
    monkeypatch.setattr(loop, "make_state", lambda *_: pytest.fail("made a second state"))
    again = run(tmp_path, tiny)
    assert held == [{}, "restored"]
    assert (again.built, again.traces) == ([], 0)  # it is not trained again


def test_every_step_is_reported_with_its_metrics(tiny, tmp_path):
    run(tmp_path, tiny)
    lines = (tmp_path / "logs" / "ict.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    measured = [record for record in records if "gradient_norm" in record]
    assert [record["step"] for record in measured] == [1, 2, 3, 4]
    assert all(np.isfinite(record["loss"]) and record["gradient_norm"] > 0 for record in measured)


def test_throughput_excludes_padding(tiny, tmp_path):
    stage = run(tmp_path, tiny, report__every=2, report__peak_flops=1e9)
    assert stage.traces == 2  # the step, and the FLOP count
    lines = (tmp_path / "logs" / "ict.jsonl").read_text().splitlines()
    measured = [r for r in map(json.loads, lines) if "loss" in r]
    assert [record["step"] for record in measured] == [2, 4]
    for record, steps in zip(measured, ((0, 1), (2, 3)), strict=True):
        batches = [stage.batch(step) for step in steps]
        real = np.mean([sum(rows.mask.sum() for rows in b.rows.blocks) for b in batches])
        per_step = record["pieces_per_second"] / record["steps_per_second"]
        assert per_step == pytest.approx(real)
        assert record["mfu"] > 0
        assert "real_pieces" not in record
    assert "eta_s" not in measured[-1]


def test_a_non_finite_loss_is_an_error_that_names_the_steps_and_is_not_saved(tiny, tmp_path):
    changes = {"stages__ict__learning_rate": 1e30, "checkpoint__every": 1, "stages__ict__steps": 8}
    with pytest.raises(RealmError, match=r"stage ict, steps \d to \d") as error:
        run(tmp_path, tiny, report__every=100, **changes)
    assert "learning_rate" in str(error.value)
    steps = commit.steps(RunDir(tmp_path).checkpoints("ict"))
    assert steps
    for step in steps:
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(saved(tmp_path, step)))


def test_the_batch_with_a_non_finite_loss_is_saved_and_can_be_replayed(tiny, tmp_path):
    """Step 0 makes the params huge, so the loss of step 1 is the first that is not finite."""
    changes = {"stages__ict__learning_rate": 1e30, "stages__ict__steps": 8, "report__every": 3}
    with pytest.raises(RealmError, match=r"steps 1 to 2[\s\S]*--replay=(.*)\n") as error:
        run(tmp_path, tiny, **changes)
    path = re.search("--replay=(.*)", str(error.value))[1]
    stage, step, batch = read_batch(path)
    config = config_of(tiny, **changes)
    built = IctStage(config, tiny.store, DEVICES).batch(1)
    assert (stage, step, type(batch)) == ("ict", 1, type(built))
    jax.tree.map(np.testing.assert_array_equal, batch, built)
    report = replay(str(tmp_path), config, path)
    assert (report["stage"], report["step"], report["checkpoint_step"]) == ("ict", 1, 0)
    assert np.isfinite(report["figures"]["loss"])  # with initial params the loss is finite
    assert not RunDir(tmp_path).config.exists()  # a replay writes nothing


def test_every_stage_whose_batches_are_saved_can_be_replayed(tiny, tmp_path):
    write_batch(epath.Path(tmp_path) / "qa.npz", "qa", 1, (np.zeros(2),))
    with pytest.raises(InputError, match="expected: " + ", ".join(REPLAYABLE)):
        replay(str(tmp_path / "run"), config_of(tiny), epath.Path(tmp_path) / "qa.npz")


@pytest.mark.slow
def test_a_replay_with_micro_batches_gives_the_metrics_of_training(tiny, tmp_path):
    changes = {"optimizer__accumulate_steps": 2, "stages__ict__batch": 16}
    changes |= {"stages__ict__steps": 2, "checkpoint__every": 1}
    stage = run(tmp_path, tiny, lambda config, store, n: IctStage(config, store, 2 * n), **changes)
    shutil.rmtree(RunDir(tmp_path).checkpoints("ict") / step_name(2))
    path = RunDir(tmp_path).replays / "ict.npz"
    write_batch(path, "ict", 1, stage.batch(1))
    figures = replay(str(tmp_path), config_of(tiny, **changes), path)["figures"]
    lines = (tmp_path / "logs" / "ict.jsonl").read_text().splitlines()
    [trained] = [r for r in map(json.loads, lines) if r["step"] == 2 and "loss" in r]
    for name in ("loss", "gradient_norm"):
        assert figures[name] == pytest.approx(trained[name], rel=1e-5)


def test_a_file_that_is_no_saved_batch_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such batch"):
        read_batch(tmp_path / "none.npz")
    for content in (b"", b"PK\x03\x04", b"\x93NUMPY", b"[]"):
        (tmp_path / "batch.npz").write_bytes(content)
        with pytest.raises(DamageError, match="not a batch") as error:
            read_batch(tmp_path / "batch.npz")
        assert "pickle" not in str(error.value)
    np.savez(tmp_path / "foreign.npz", about=np.frombuffer(FOREIGN, np.uint8))
    with pytest.raises(DamageError, match="not a type of this package"):
        read_batch(tmp_path / "foreign.npz")


def test_an_error_in_the_prefetch_thread_is_raised_by_train(tiny, tmp_path):
    class Broken(IctStage):
        def batch(self, step, *batch_rows):
            if step == 1:
                raise InputError("no more text")
            return super().batch(step, *batch_rows)

    with pytest.raises(InputError, match="no more text"):
        run(tmp_path, tiny, Broken)


def test_a_checkpoint_of_another_model_is_refused_with_both_shapes(tiny, tmp_path):
    with pytest.raises(Stopped, match="step 2"):
        run(tmp_path, tiny, stages__ict__evaluate_every=2, refresh__every=STEPS)
    beat = last_beat(RunDir(tmp_path), "trainer")
    assert (beat["stage"], beat["step"]) == ("ict", 2)  # `realm status` shows where it stopped
    with pytest.raises(MismatchError, match=r"\(4,\)[\s\S]*\(8,\)"):
        run(tmp_path, tiny, model__embedding=4)
