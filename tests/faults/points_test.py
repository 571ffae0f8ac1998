"""Both jobs for real, hung at a named point, then killed, stopped or told to end: nothing is lost.

The same command, run again, finishes every one of these runs, and every byte of what it leaves is
as published. `make faults` runs them all; a few stand in `make test-slow`.
"""

import os
import signal
import time

import pytest

from realm_jax.exchange import commit
from realm_jax.exchange.check import check
from realm_jax.exchange.export import read_export
from realm_jax.exchange.layout import RunDir
from realm_jax.failpoints import VARIABLE
from realm_jax.testing.processes import Command, builder_of, environment, state_of, swaps_of

STEPS, EVERY = 60, 10
HANGING = "T"
# name -> which visit hangs: the second where there is one, so that a run is under way
TRAINER = {
    "snapshot.staged": 2,
    "snapshot.committed": 2,
    "snapshot.published": 2,
    "checkpoint.staged": 2,
    "checkpoint.committed": 2,
    "index.leased": 2,
    "index.verified": 2,
    "index.swapped": 2,
    "export.staged": 1,
    "export.committed": 1,
    "end.begun": 1,
    "end.marked": 1,
}
BUILDER = {
    "shard.embedded": 2,
    "searcher.written": 2,
    "published_index.staged": 2,
    "published_index.committed": 2,
    "published_index.published": 2,
}
SECONDS_STOPPED = 30.0


def kill_trainer(trainer, builder):
    os.kill(trainer, signal.SIGKILL)
    go_on(builder)


def kill_builder(trainer, builder):
    os.kill(builder, signal.SIGKILL)
    go_on(trainer)


def kill_both(trainer, builder):
    os.kill(builder, signal.SIGKILL)
    os.kill(trainer, signal.SIGKILL)


def stop_builder(trainer, builder):
    os.kill(builder, signal.SIGSTOP)
    go_on(trainer)
    time.sleep(SECONDS_STOPPED)
    go_on(builder)


def terminate(trainer, builder):
    os.kill(trainer, signal.SIGTERM)
    go_on(trainer)
    go_on(builder)


SIGNALS = [kill_trainer, kill_builder, kill_both, stop_builder, terminate]
ENDS = {  # exit codes of the first life
    kill_trainer: {-signal.SIGKILL},
    kill_builder: {1, 0},  # 0 where nothing was left for the builder to do
    kill_both: {-signal.SIGKILL},
    stop_builder: {0},
    terminate: {75, 0},
}


def go_on(pid):
    if state_of(pid) not in ("", "Z"):
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """What one process of these tests compiled, the next one need not."""
    return environment(tmp_path_factory.mktemp("compiled"))


@pytest.fixture
def arguments(tmp_path, tiny):
    """`realm run` of a few dozen steps; the trainer is held back by waiting for each index."""
    config = tmp_path / "config.py"
    config.write_text(
        f"""
from realm_jax.testing.fakes import tiny_config


def get_config():
    return tiny_config(
        {str(tiny.folder)!r},
        model__layers=1,
        stages__realm__steps={STEPS},
        refresh__mode="sync",
        refresh__every={EVERY},
        checkpoint__every={EVERY},
        report__every={EVERY},
    )
"""
    )
    return ["run", f"--config={config}", f"--workdir={tmp_path / 'run'}"]


def hung_processes(run, command):
    """Trainer and builder, once one of them hangs at the point."""
    trainer = command.process.pid

    def one_hangs():
        builder = builder_of(run)
        return builder is not None and HANGING in (state_of(trainer), state_of(builder))

    command.until(one_hangs, "process at the point", seconds=120.0)
    return trainer, builder_of(run)


@pytest.mark.faults
@pytest.mark.parametrize("do", SIGNALS, ids=lambda do: do.__name__)
@pytest.mark.parametrize("point", [*TRAINER, *BUILDER])
def test_whatever_happens_at_a_point_the_same_command_finishes(
    tmp_path, arguments, compiled, point, do
):
    run = RunDir(tmp_path / "run")
    spec = f"{point}:{(TRAINER | BUILDER)[point]}=hang"
    first = Command(tmp_path, {**compiled, VARIABLE: spec}, *arguments)
    try:
        do(*hung_processes(run, first))
        assert first.process.wait(300) in ENDS[do], first.err.read_text()
    finally:
        builder = builder_of(run)
        for pid in (first.process.pid, builder):
            if pid is not None and state_of(pid) not in ("", "Z"):
                os.kill(pid, signal.SIGKILL)
    before = swaps_of(run)

    Command(tmp_path, compiled, *arguments).wait(0, seconds=300.0)
    report = check(run.root)
    assert report["ok"], report["problems"]
    assert swaps_of(run)[: len(before)] == before
    assert swaps_of(run) == [(step, step) for step in range(0, STEPS, EVERY)]
    assert commit.latest(run.checkpoints("realm")) == STEPS
    export = read_export(run)
    assert (export.step, export.index_step) == (STEPS, STEPS)
    assert run.end_marker.exists()
