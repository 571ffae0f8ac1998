"""Training continues when the index builder is slow, dead, started twice or out of disk space."""

import os
import signal
import threading

import pytest
from support.history import assert_history
from support.processes import logged_swaps
from support.tiny_corpus import tiny_config
from support.two_jobs import TwoJobs

from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.cli import exit_codes
from realm_jax.index_builder import run as index_builder
from realm_jax.storage.failpoints import VARIABLE
from realm_jax.storage.follow import ended, follow
from realm_jax.storage.heartbeat import last_beat
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log
from realm_jax.trainer import run as trainer
from realm_jax.trainer.swap_log import staleness

FAULT = "slow, late, dead"
STEPS, EVERY, ALARM = 60, 2, 8
TIMEOUT = 900.0


def make_config(tiny):
    return tiny_config(
        tiny.folder,
        model__layers=1,
        stages__realm__steps=STEPS,
        refresh__mode="async",
        refresh__every=EVERY,
        refresh__alarm_steps=ALARM,
        refresh__wait_seconds=TIMEOUT,
        report__every=10,
    )


def train_with_builder(run, config, build):
    """Trains while `build(run, trained)` replaces the builder; a real builder then ends the run.

    Returns:
      The swaps (step, index step) of the run.
    """
    trained = threading.Event()

    def builder():
        build(run, trained)
        index_builder.run(str(run.root), 0.02, threading.Event())

    thread = threading.Thread(target=builder, daemon=True)
    thread.start()
    trainer.run(str(run.root), config, threading.Event())
    thread.join(TIMEOUT)
    assert_history(run, STEPS)
    return logged_swaps(run)


def trained_steps(run):
    """Returns the step of the newest report."""
    return max([record["step"] for record in read_log(run.logs / "realm.jsonl")], default=0)


def refresh(run, step):
    index_builder.refresh(run, read_snapshot(run.snapshots / step_name(step)), threading.Event())


def wait_for(holds):
    pause = threading.Event()
    while not holds():
        pause.wait(0.02)


@pytest.mark.faults
def test_training_finishes_without_a_builder_and_warns_once(tiny, tmp_path, caplog):
    """The builder publishes one index, dies, and is restarted after the last training step."""

    def build_once(run, _):
        wait_for((run.snapshots / "LATEST.json").exists)
        refresh(run, 0)
        wait_for(lambda: trained_steps(run) == STEPS)

    run = RunDir(tmp_path)
    swaps = train_with_builder(run, make_config(tiny), build_once)
    assert swaps == [(0, 0)]
    assert staleness(swaps, STEPS)["max"] == STEPS - 1
    [warning] = [r.getMessage() for r in caplog.records if "alarm_steps" in r.getMessage()]
    assert f"step {ALARM + 1} searches the index of step 0" in warning
    assert "realm index --workdir=" in warning


@pytest.mark.faults
def test_a_slow_builder_does_not_delay_training(tiny, tmp_path, caplog):
    """The builder starts an index only when the trainer is ten snapshots ahead."""

    def build_slowly(run, _):
        built = -1
        for step in follow(
            run.snapshots,
            None,
            poll_seconds=0.02,
            stop=threading.Event(),
            ended=lambda: trained_steps(run) >= STEPS,
        ):
            refresh(run, step)
            built = step
            wait_for(lambda built=built: trained_steps(run) >= min(built + 10 * EVERY, STEPS))

    swaps = train_with_builder(RunDir(tmp_path), make_config(tiny), build_slowly)
    assert 2 <= len(swaps) <= STEPS // (10 * EVERY) + 1
    assert staleness(swaps, STEPS)["max"] >= 10 * EVERY - 1
    assert "alarm_steps" in caplog.text


@pytest.mark.faults
@pytest.mark.parametrize("n", [3, 40, 90])
def test_a_full_disk_stops_the_run_with_an_error_and_the_same_command_finishes(
    tmp_path, tiny, fork_server, n
):
    """The n-th file operation of each job fails; the first job that gets there ends the run."""
    jobs = TwoJobs(tmp_path, fork_server, tiny.folder, 30, 10)
    first = jobs.start(**{VARIABLE: f"file:{n}=full"})
    try:
        stderr = first.wait(1, TIMEOUT)
    finally:
        jobs.kill()
    assert "No space left" in stderr
    assert "run the same command to resume" in stderr
    jobs.finish(TIMEOUT)


@pytest.mark.faults
def test_a_second_builder_waits_until_the_first_has_ended(tmp_path, tiny, fork_server):
    jobs = TwoJobs(tmp_path, fork_server, tiny.folder, 30, 10)
    try:
        first = jobs.start("index", "--poll=0.05")
        first.until(lambda: last_beat(jobs.run, "index_builder") is not None, "heartbeat", TIMEOUT)
        second = jobs.start("index", "--poll=0.05")
        second.until(lambda: "another index_builder" in second.err.read_text(), "warning", TIMEOUT)
        os.kill(first.process.pid, signal.SIGKILL)
        jobs.start("train").wait(0, TIMEOUT)
        second.wait(0, TIMEOUT)
    finally:
        jobs.kill()
    assert ended(jobs.run)
    jobs.assert_complete()


@pytest.mark.faults
def test_a_second_trainer_waits_and_does_not_change_the_run(tmp_path, tiny, fork_server):
    jobs = TwoJobs(tmp_path, fork_server, tiny.folder, 30, 10)
    try:
        first = jobs.start("train")  # waits for its first index
        first.until(lambda: last_beat(jobs.run, "trainer") is not None, "heartbeat", TIMEOUT)
        second = jobs.start("train")
        second.until(lambda: "another trainer" in second.err.read_text(), "warning", TIMEOUT)
        second.process.send_signal(signal.SIGTERM)
        assert f"process {first.process.pid}" in second.wait(exit_codes.STOPPED, TIMEOUT)
        jobs.start("index", "--poll=0.05").wait(0, TIMEOUT)
        first.wait(0, TIMEOUT)
    finally:
        jobs.kill()
    jobs.assert_complete()
