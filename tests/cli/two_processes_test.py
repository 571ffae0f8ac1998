"""`realm run` for real: two processes, swaps, and every way of being stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from realm_jax.exchange.files import unseal
from realm_jax.exchange.layout import RunDir

CACHE = "compiled"  # what one process of these tests compiled, the next one need not


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """One device, and compiled programs kept between the processes of these tests."""
    return {
        **{k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp(CACHE)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


class Command:
    """A `realm` process with its output in files."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: object):
        self.out, self.err = folder / "stdout.txt", folder / "stderr.txt"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "realm_jax.cli.main", *map(str, arguments)],
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )

    def wait(self, code: int, seconds: float = 600) -> str:
        """Its stderr, once it ended as expected."""
        found = self.process.wait(seconds)
        text = self.err.read_text()
        assert found == code, text
        assert "Traceback" not in text
        return text

    def json(self):
        """The last line of stdout."""
        return json.loads(self.out.read_text().splitlines()[-1])

    def until(self, holds, what: str, seconds: float = 600) -> None:
        """Waits for something to be so while the process runs."""
        stop = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, f"ended before {what}:\n{self.err.read_text()}"
            assert time.monotonic() < stop, f"no {what} in time:\n{self.err.read_text()}"
            time.sleep(0.05)


@pytest.fixture
def realm_process(tmp_path, environment):
    """Starts `realm` processes; none outlives the test."""
    started = []

    def start(*arguments: object) -> Command:
        started.append(Command(tmp_path, environment, *arguments))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGKILL)
            command.process.wait()


@pytest.fixture
def run_command(tmp_path, tiny):
    """A run that swaps every few steps; the trainer is held back so that the builder keeps up."""
    config = tmp_path / "two.py"
    config.write_text(
        f"""
from realm_jax.testing.fakes import tiny_config


def get_config():
    return tiny_config(
        {str(tiny.folder)!r},
        stages__ict__steps=2,
        stages__realm__steps=300,
        refresh__mode="async",
        refresh__every=10,
        checkpoint__every=50,
        report__every=50,
    )
"""
    )
    return ["run", f"--config={config}", f"--workdir={tmp_path / 'run'}"]


def _swaps(run: RunDir) -> list[tuple[int, int]]:
    if not run.swaps.exists():
        return []
    records = [json.loads(line) for line in run.swaps.read_text().splitlines()]
    return [(record["step"], record["index_step"]) for record in records]


def _builder(run: RunDir) -> int | None:
    """The builder's process, once it has shown itself."""
    beat = run.heartbeats / "index_builder.json"
    return unseal(beat.read_bytes(), beat)["pid"] if beat.exists() else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/status").read_text().find("State:\tZ") < 0


def _gone(pid: int, seconds: float = 60) -> bool:
    stop = time.monotonic() + seconds
    while _alive(pid) and time.monotonic() < stop:
        time.sleep(0.05)
    return not _alive(pid)


@pytest.mark.slow
def test_two_jobs_swap_stop_go_on_and_answer(realm_process, run_command, tmp_path, tiny):
    run = RunDir(tmp_path / "run")
    first = realm_process(*run_command, "--json")
    first.until(lambda: len(_swaps(run)) >= 3, "second swap")
    builder = _builder(run)
    first.process.send_signal(signal.SIGTERM)
    said = first.wait(75)
    assert "stopped in stage realm at step" in said
    assert first.json()["state"] == "stopped"
    assert _gone(builder)
    before = _swaps(run)

    second = realm_process(*run_command, "--json")
    second.wait(0)
    assert second.json() == {"state": "done", "steps": 300}
    assert second.out.read_text().count("\n") == 1
    swaps = _swaps(run)
    assert swaps[: len(before)] == before
    assert len({index for _, index in swaps}) >= 3
    assert all(index <= step for step, index in swaps)
    assert run.end_marker.exists()

    check = realm_process("check", run.workdir, "--json")
    check.wait(0)
    assert check.json()["ok"]
    ask = realm_process("ask", f"--workdir={run.workdir}", "--json", "Ora is [MASK].")
    ask.wait(0)
    assert ask.json()["index_step"] == 300


@pytest.mark.slow
def test_a_killed_builder_is_named_and_the_rerun_finishes(realm_process, run_command, tmp_path):
    run = RunDir(tmp_path / "run")
    first = realm_process(*run_command)
    first.until(lambda: len(_swaps(run)) >= 2, "first swap")
    os.kill(_builder(run), signal.SIGKILL)
    said = first.wait(1)
    assert "the index builder died" in said
    assert "exit code -9" in said
    assert "index_builder.log" in said
    realm_process(*run_command).wait(0)
    assert run.end_marker.exists()


@pytest.mark.slow
def test_a_builder_that_cannot_build_is_quoted(realm_process, run_command, tmp_path):
    first = realm_process(*run_command, "--config.builder.recall_floor=1.5")
    said = first.wait(1)
    assert "the index builder died" in said
    assert "builder.recall_floor" in said


@pytest.mark.slow
def test_a_stop_is_heard_while_waiting_for_the_first_index(realm_process, run_command, tmp_path):
    alone = realm_process("train", *run_command[1:])
    alone.until(lambda: "waiting for the index" in alone.err.read_text(), "waiting")
    alone.process.send_signal(signal.SIGINT)
    assert "stopped in stage realm at step 0" in alone.wait(75, seconds=120)
    realm_process(*run_command).wait(0)


@pytest.mark.slow
def test_ctrl_c_ends_both(realm_process, run_command, tmp_path):
    run = RunDir(tmp_path / "run")
    first = realm_process(*run_command)
    first.until(lambda: len(_swaps(run)) >= 2, "first swap")
    builder = _builder(run)
    os.killpg(first.process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    said = first.wait(75)
    assert "died" not in said
    assert _gone(builder)


@pytest.mark.slow
def test_a_killed_trainer_takes_its_builder_along(realm_process, run_command, tmp_path):
    run = RunDir(tmp_path / "run")
    first = realm_process(*run_command)
    first.until(lambda: len(_swaps(run)) >= 2, "first swap")
    builder = _builder(run)
    first.process.kill()
    first.process.wait()
    assert _gone(builder)
    realm_process(*run_command).wait(0)


@pytest.mark.slow
def test_a_builder_told_to_stop_stops_the_run(realm_process, run_command, tmp_path):
    run = RunDir(tmp_path / "run")
    first = realm_process(*run_command)
    first.until(lambda: len(_swaps(run)) >= 2, "first swap")
    os.kill(_builder(run), signal.SIGTERM)
    said = first.wait(75)
    assert "the index builder was told to stop" in said


@pytest.mark.slow
def test_a_finished_run_learns_to_answer(realm_process, run_command, tmp_path, tiny):
    run = RunDir(tmp_path / "run")
    realm_process(*run_command, "--config.stages.realm.steps=20").wait(0)
    ask = ["ask", f"--workdir={run.workdir}", "--json", "--k=3", "What is the capital of Ora?"]
    assert "never taught" in realm_process(*ask).wait(1)
    folder = tmp_path / "questions"
    folder.mkdir()
    lines = [{"question": q.text, "answers": q.answers} for q in tiny.questions]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tune = ["finetune", f"--workdir={run.workdir}", f"--questions={folder}", "--json"]
    tuned = realm_process(*tune, "--config.stages.qa.steps=5")
    tuned.wait(0)
    assert tuned.json() == {"state": "done", "export_step": 25}
    asked = realm_process(*ask)
    asked.wait(0)
    assert len(asked.json()["passages"]) == 3
    judged = realm_process(
        "eval", f"--workdir={run.workdir}", f"--questions={folder / 'train.jsonl'}", "--json"
    )
    judged.wait(0)
    assert judged.json()["questions"] == len(tiny.questions)
