"""`realm run` with two real processes: swaps, signals and restarts."""

import json
import os
import signal
import time

import pytest
from support.processes import (
    RealmProcess,
    builder_pid,
    environment,
    kill_all,
    logged_swaps,
    process_state,
)

from realm_jax.storage.failpoints import VARIABLE
from realm_jax.storage.layout import RunDir


@pytest.fixture(scope="session")
def compiled(compilation_cache):
    """A compilation cache that all processes of these tests share."""
    return environment(compilation_cache)


@pytest.fixture
def realm_process(tmp_path, compiled):
    """Starts `realm` processes, and kills them after the test."""
    started = []

    def start(*arguments: object, **added: str) -> RealmProcess:
        started.append(RealmProcess(tmp_path, compiled, *arguments, added=added))
        return started[-1]

    yield start
    kill_all(started)


@pytest.fixture
def run_command(tmp_path, tiny):
    """A command that swaps every few steps, with a slowed trainer so that the builder keeps up."""
    config = tmp_path / "two.py"
    config.write_text(
        f"""
from support.tiny_corpus import tiny_config


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


def _gone(pid: int, seconds: float = 60) -> bool:
    stop = time.monotonic() + seconds
    while process_state(pid) not in ("", "Z") and time.monotonic() < stop:
        time.sleep(0.05)
    return process_state(pid) in ("", "Z")


@pytest.fixture
def running(realm_process, run_command, tmp_path):
    """Both jobs, after the first swap: the run folder, and the process of `realm run`."""
    run, first = RunDir(tmp_path / "run"), realm_process(*run_command)
    first.until(lambda: len(logged_swaps(run)) >= 2, "first swap")
    return run, first


@pytest.mark.slow
def test_two_jobs_swap_stop_resume_and_answer(realm_process, run_command, tmp_path, tiny):
    run = RunDir(tmp_path / "run")
    first = realm_process(*run_command, "--json")
    first.until(lambda: len(logged_swaps(run)) >= 3, "second swap")
    builder = builder_pid(run)
    first.process.send_signal(signal.SIGTERM)
    stderr = first.wait(75)
    assert "stopped in stage realm at step" in stderr
    assert first.json()["state"] == "stopped"
    assert _gone(builder)
    before = logged_swaps(run)

    second = realm_process(*run_command, "--json")
    second.wait(0)
    assert second.json() == {"state": "done", "steps": 300}
    assert "Retrieval utility by rank" in (run.root / "report.html").read_text()
    assert second.out.read_text().count("\n") == 1
    swaps = logged_swaps(run)
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
def test_a_killed_builder_is_reported_and_the_rerun_finishes(running, realm_process, run_command):
    run, first = running
    os.kill(builder_pid(run), signal.SIGKILL)
    stderr = first.wait(1)
    assert "the index builder failed" in stderr
    assert "exit code -9" in stderr
    assert "index_builder.log" in stderr
    realm_process(*run_command).wait(0)
    assert run.end_marker.exists()


@pytest.mark.slow
def test_the_error_of_a_failed_builder_is_printed(realm_process, run_command, tmp_path):
    first = realm_process(*run_command, **{VARIABLE: "shard.embedded=full"})
    stderr = first.wait(1)
    assert "the index builder failed" in stderr
    assert "No space left" in stderr


@pytest.mark.slow
def test_a_stop_signal_ends_the_wait_for_the_first_index(realm_process, run_command, tmp_path):
    alone = realm_process("train", *run_command[1:])
    alone.until(lambda: "waits for an index" in alone.err.read_text(), "waiting")
    alone.process.send_signal(signal.SIGINT)
    assert "stopped in stage realm at step 0" in alone.wait(75, seconds=120.0)
    realm_process(*run_command).wait(0)


@pytest.mark.slow
def test_ctrl_c_ends_both_jobs(running):
    run, first = running
    builder = builder_pid(run)
    os.killpg(first.process.pid, signal.SIGINT)  # to the process group, as a terminal does
    stderr = first.wait(75)
    assert "failed" not in stderr
    assert _gone(builder)


@pytest.mark.slow
def test_a_killed_trainer_ends_its_builder(running, realm_process, run_command):
    run, first = running
    builder = builder_pid(run)
    first.process.kill()
    first.process.wait()
    assert _gone(builder)
    realm_process(*run_command).wait(0)


@pytest.mark.slow
def test_a_stopped_builder_stops_the_run(running):
    run, first = running
    os.kill(builder_pid(run), signal.SIGTERM)
    stderr = first.wait(75)
    assert "the index builder received a stop signal" in stderr


@pytest.mark.slow
def test_a_finished_run_can_be_fine_tuned(realm_process, run_command, tmp_path, tiny):
    run = RunDir(tmp_path / "run")
    realm_process(*run_command, "--config.stages.realm.steps=20").wait(0)
    ask = ["ask", f"--workdir={run.workdir}", "--json", "--k=3", "What is the capital of Ora?"]
    assert "not fine-tuned" in realm_process(*ask).wait(1)
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
