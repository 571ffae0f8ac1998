"""A searcher in another process: same results and errors, and the process always ends."""

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

from realm_jax import config as configs
from realm_jax.errors import DamageError, MismatchError, RealmError
from realm_jax.retrieval import search_process
from realm_jax.retrieval.search_process import (
    MIN_ROWS,
    WORKER_MODULE,
    SearchProcess,
    load_in_subprocess,
)
from realm_jax.retrieval.search_worker import NICENESS
from realm_jax.retrieval.searcher import build_searcher, load_searcher
from realm_jax.retrieval.searcher_files import DESCRIPTION
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher

PATIENCE = 30.0
PARENT = """
import os, signal, sys
from pathlib import Path
from realm_jax.retrieval import search_process
from realm_jax.retrieval.search_process import SearchProcess
print(SearchProcess(Path(sys.argv[1]))._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def save(folder, kind, size):
    vectors = np.random.default_rng(0).normal(size=(size, 16)).astype(np.float32)
    folder.mkdir()
    build_searcher(kind, vectors, configs.default().search).save(folder)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(tmp_path_factory.mktemp("searcher") / "scann", "scann", MIN_ROWS)


@pytest.fixture
def queries():
    return np.random.default_rng(1).normal(size=(64, 16)).astype(np.float32)


def until_gone(pid):
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the process is still there"
        time.sleep(0.02)


def test_it_gives_the_results_of_the_saved_searcher(saved, queries):
    here, apart = load_searcher(saved), load_in_subprocess(saved)
    assert isinstance(apart, SearchProcess)
    for name in ("kind", "size", "dims", "bytes"):
        assert getattr(apart, name) == getattr(here, name)
    for k in (1, 8, 150):
        right, found = here.search(queries, k), apart.search(queries, k)
        for mine, theirs in zip(right, found, strict=True):
            assert theirs.dtype == mine.dtype
            np.testing.assert_array_equal(theirs, mine)


def priorities(pid):
    """Returns the priorities of the threads of a process."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [int(stat.rpartition(")")[2].split()[16]) for stat in stats]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priorities")
def test_loading_has_a_low_priority_and_searching_does_not(saved, queries):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    ours, its = socket.socketpair()
    with ours, its:
        # Reading from an empty pipe blocks the loading thread, so that its priority can be read.
        held = saved.parent / "held"
        held.mkdir()
        os.mkfifo(held / DESCRIPTION)
        command = [sys.executable, "-m", WORKER_MODULE, str(held), *"01", str(its.fileno())]
        child = subprocess.Popen(command, pass_fds=[its.fileno()])
        try:
            deadline = time.monotonic() + PATIENCE
            while min(19, own + NICENESS) not in priorities(child.pid):
                assert time.monotonic() < deadline, priorities(child.pid)
                time.sleep(0.02)
        finally:
            child.kill()
            child.wait()
    segmented = saved.parent / "segmented"
    segmented.mkdir()
    SegmentedSearcher([load_searcher(saved)]).save(segmented)
    for folder in (saved, segmented):
        apart = SearchProcess(folder)
        apart.search(queries, 8)
        # Threads that search, without the threads that NumPy starts during loading.
        assert priorities(apart._process.pid).count(own) == max(2, os.cpu_count())


@pytest.mark.parametrize(("kind", "size"), [("exact", MIN_ROWS), ("scann", 1000)])
def test_searchers_that_load_quickly_are_loaded_in_this_process(kind, size, tmp_path):
    searcher = load_in_subprocess(save(tmp_path / kind, kind, size))
    assert not isinstance(searcher, SearchProcess)
    assert (searcher.kind, searcher.size) == (kind, size)


def test_concurrent_searches_get_their_own_results(saved, queries):
    apart, found = SearchProcess(saved), {}

    def ask(place):
        found[place] = [apart.search(queries[place : place + 1], 5)[0] for _ in range(50)]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    right = apart.search(queries, 5)[0]
    for place in range(8):
        assert (np.concatenate(found[place]) == right[place]).all()


def test_errors_of_the_searcher_are_raised_in_the_caller(saved, queries, tmp_path):
    apart = SearchProcess(saved)
    with pytest.raises(MismatchError, match=r"float32 \[B, 16\]"):
        apart.search(queries[:, :8].copy(), 5)
    apart.size = 10 * MIN_ROWS  # so that the other process raises the error
    with pytest.raises(MismatchError, match=rf"1 to {MIN_ROWS}(.|\n)*fix: .*larger corpus"):
        apart.search(queries, MIN_ROWS + 1)
    assert apart.search(queries, 5)[0].shape == (64, 5)
    damaged = save(tmp_path / "damaged", "scann", MIN_ROWS)
    (damaged / "scann_assets.pbtxt").write_text("nothing")
    with pytest.raises(DamageError, match=f"where: +{damaged}"):
        SearchProcess(damaged)


def test_it_ends_when_the_searcher_is_deleted(saved, collect_garbage):
    apart = SearchProcess(saved)
    pid = apart._process.pid
    del apart
    collect_garbage()
    until_gone(pid)


def test_it_ends_with_its_parent(saved):
    command = [sys.executable, "-c", PARENT, str(saved)]
    parent = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL
    until_gone(int(parent.stdout))


def test_it_ignores_signals_that_its_parent_handles(saved, queries):
    apart = SearchProcess(saved)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(apart._process.pid, number)
    assert apart.search(queries, 5)[0].shape == (64, 5)


def test_its_death_is_an_error_with_its_exit_code(saved, queries):
    apart = SearchProcess(saved)
    os.kill(apart._process.pid, signal.SIGKILL)
    with pytest.raises(RealmError, match=r"exit code -9(.|\n)*memory ran out"):
        apart.search(queries, 5)


def test_a_process_that_hangs_is_an_error_and_is_killed(saved, queries, monkeypatch):
    apart = SearchProcess(saved)
    pid = apart._process.pid
    monkeypatch.setattr(search_process, "_SEARCH_SECONDS", 0.5)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RealmError, match=rf"does not answer(.|\n)*process {pid}(.|\n)*0.5 s"):
        apart.search(queries, 5)
    until_gone(pid)
    with pytest.raises(RealmError, match="exit code -9"):
        apart.search(queries, 5)


def test_its_death_during_loading_is_a_damage_error(saved, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DamageError, match=rf"{saved}(.|\n)*exit code 1"):
        SearchProcess(saved)
