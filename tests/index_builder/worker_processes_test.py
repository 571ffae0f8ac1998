"""Builders as real processes: killed, suspended, and as the processes of one slice."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.object_store import BUCKET, serve_object_store
from support.processes import RealmProcess, environment, kill_all
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.published_index import open_index
from realm_jax.index_builder import run as index_builder
from realm_jax.storage import commit, files, follow, sealed
from realm_jax.storage.layout import RunDir, step_name

PATIENCE = 600.0
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled(compilation_cache):
    """A compilation cache that all processes of these tests share."""
    return environment(compilation_cache)


@pytest.fixture(scope="module")
def config(tiny):
    """The corpus has ten shards."""
    return tiny_config(tiny.folder, model__layers=1, builder__shard=4)


@pytest.fixture
def run(run, publish, config):
    """A run with one snapshot."""
    publish(run, 2, config)
    return run


@pytest.fixture
def start(tmp_path, compiled):
    """Starts builders of a run, and kills them after the test."""
    started = []

    def start(run, *flags, **added):
        folder = tmp_path / f"builder{len(started)}"
        folder.mkdir()
        arguments = ("index", f"--workdir={run.workdir}", "--poll=0.05", *flags)
        started.append(RealmProcess(folder, compiled, *arguments, added=added))
        return started[-1]

    yield start
    kill_all(started)


def vectors_of_one_builder(tmp_path, publish, config):
    one = RunDir(tmp_path / "one")
    publish(one, 2, config)
    follow.mark_end(one)
    assert index_builder.run(str(one.root), 0.05, threading.Event()) == 1
    return open_index(one.published_index / step_name(2)).vectors


def test_a_killed_worker_is_waited_for_and_resumes_after_its_last_shard(
    run, start, publish, tmp_path, config
):
    first = start(run, "--worker=0/2")
    second = start(run, "--worker=1/2", REALM_FAILPOINT="shard.embedded:2=kill")
    assert second.process.wait(PATIENCE) == -signal.SIGKILL
    first.until(lambda: "waiting for 3 shards of workers 1/2" in first.err.read_text(), "wait")
    folder = run.shards(2)
    before = {name: (folder / name).stat() for name in files.list_names(folder)}
    assert len(before) == 1 + 5 + 2  # the work order, and two of the five shards of worker 1
    again = start(run, "--worker=1/2")
    first.until(lambda: commit.is_published(run.published_index / step_name(2)), "index")
    follow.mark_end(run)
    assert "embedding 3 of 5 shards" in again.wait(0)
    first.wait(0)
    found = open_index(run.published_index / step_name(2)).vectors
    expected = vectors_of_one_builder(tmp_path, publish, config)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)  # float16; other batches


def test_processes_of_a_slice_are_workers(run, start, publish, tmp_path, config):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    follow.mark_end(run)
    flags = [f"--coordinator=localhost:{port}", "--processes=2"]
    both = [start(run, *flags, f"--process={n}", "--devices=2") for n in range(2)]
    stderr = [one.wait(0) for one in both]
    assert "embedding 5 of 5 shards" in stderr[1]
    assert commit.steps(run.published_index) == [2] and files.list_names(run.builder) == []
    found = open_index(run.published_index / step_name(2)).vectors
    expected = vectors_of_one_builder(tmp_path, publish, config)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [
        (signal.SIGTERM, 75, "received a stop signal"),
        (signal.SIGKILL, -signal.SIGKILL, "process 1 of 2 is lost"),
    ],
    ids=["stopped", "killed"],
)
def test_all_processes_of_a_slice_end_with_one_of_them(run, start, sent, code, told):
    """They would wait for its shards."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = [f"--coordinator=localhost:{port}", "--processes=2"]
    first, second = (start(run, *flags, f"--process={n}") for n in range(2))
    first.until(lambda: commit.is_published(run.published_index / step_name(2)), "index")
    second.process.send_signal(sent)
    second.wait(code)  # its own exit code, not that of a process that another one ended
    assert told in first.wait(76)


@pytest.mark.parametrize(
    "moment", ["shard.embedded:3", "published_index.staged", "published_index.committed"]
)
def test_a_suspended_builder_that_was_overtaken_changes_nothing(
    compiled, publish, tmp_path, moment, config
):
    """SIGSTOP, until another builder has published this step and the next one; then SIGCONT."""
    with serve_object_store():
        run = RunDir(f"{BUCKET}/{moment.replace(':', '_')}")
        publish(run, 2, config)
        late = _builder(run, tmp_path / "late.txt", compiled, REALM_FAILPOINT=f"{moment}=hang")
        assert os.waitpid(late.pid, os.WUNTRACED)[1] & 0xFF == 0x7F  # stopped itself
        other = _builder(run, tmp_path / "other.txt", compiled)
        wait_until(lambda: commit.is_published(run.published_index / step_name(2)))
        publish(run, 4, config)
        follow.mark_end(run)
        assert other.wait(PATIENCE) == 0, (tmp_path / "other.txt").read_text()
        published = {step: _manifest(run, step) for step in commit.steps(run.published_index)}
        assert commit.latest(run.published_index) == 4
        files.write_bytes(run.shards(2) / "shard_0000000000.f32", b"of another builder")
        late.send_signal(signal.SIGCONT)
        assert late.wait(PATIENCE) == 1
        assert "another process has taken over" in (tmp_path / "late.txt").read_text()
        found = {step: _manifest(run, step) for step in commit.steps(run.published_index)}
        assert found == published
        assert sealed.read(run.published_index / "LATEST.json") == {"step": 4}
        assert files.list_names(run.shards(2))
        for step in published:
            open_index(run.published_index / step_name(step))


def wait_until(holds):
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def _manifest(run, step):
    return files.read_bytes(run.published_index / step_name(step) / "MANIFEST.json")


def _builder(run, output, compiled, **added):
    """Starts a builder whose lock expires after three seconds."""
    script = Path(__file__).with_name("builder_process.py")
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with output.open("w") as file:
        return subprocess.Popen(
            [sys.executable, script, "3", "index", f"--workdir={run.workdir}", "--poll=0.05"],
            stderr=file,
            env={**compiled, **aws, **added},
        )
