"""Which index each training step searches: swaps, replays, refused indexes and time limits."""

import contextlib
import errno
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.peer_processes import PeerProcesses
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.audit_log import probe_hash_of
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.errors import RealmError
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.search_process import MIN_ROWS, SearchProcess
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.heartbeat import beat
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.storage.leases import retain
from realm_jax.trainer import index_manager, index_wait
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.index_wait import WaitInterrupted
from realm_jax.trainer.index_watcher import IndexWatcher
from realm_jax.trainer.prefetch import AHEAD
from realm_jax.trainer.swap_log import staleness

CORPUS = "c0ffee"
TIMEOUT = 30.0  # seconds


def publish(run, *steps, corpus=CORPUS, width=8):
    for step in steps:
        vectors = np.random.default_rng(step).normal(size=(5, width)).astype(np.float32)
        parameters = {"w": np.full(3, step, np.float32)}
        rows, fields = np.arange(5), {"corpus_hash": corpus}
        publish_index(run, step, ExactSearcher(vectors), rows, vectors, parameters, fields, "{}")


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


@pytest.fixture
def make(run):
    """Creates index managers, and closes them after the test."""
    made = []

    def make(mode="async", replay=(), stop=None, **changes):
        config = tiny_config(refresh__mode=mode, **changes)
        made.append(IndexManager(run, config, {CORPUS}.__contains__, list(replay), set, stop))
        return made[-1]

    yield make
    for index in made:
        index.close()


def search(index, step):
    """The index step that `step` searches, after the same calls as in a training step."""
    found = index.for_step(step).step
    index.accept([index.offer(step + 1)])
    return found


def until(holds):
    """Waits until `holds()` is true."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_sync_waits_for_the_index_of_each_snapshot(run, make):
    publish(run, 0, 2, 4)
    index = make("sync")
    assert [search(index, step) for step in range(6)] == [0, 0, 2, 2, 4, 4]
    assert index.swaps == [(0, 0), (2, 2), (4, 4)]
    lines = run.swaps.read_text().splitlines()
    assert [(r["step"], r["index_step"]) for r in map(json.loads, lines)] == index.swaps


def test_an_index_that_blocks_other_threads_is_loaded_in_another_process(run, make):
    vectors = np.random.default_rng(0).normal(size=(MIN_ROWS, 8)).astype(np.float32)
    searcher = build_searcher("scann", vectors, tiny_config().search)
    rows, fields = np.arange(MIN_ROWS), {"corpus_hash": CORPUS}
    publish_index(run, 0, searcher, rows, vectors, {"w": np.zeros(3)}, fields, "{}")
    found = make().for_step(0).searcher
    assert isinstance(found, SearchProcess)
    some = vectors[:9]
    np.testing.assert_array_equal(found.search(some, 5)[0], searcher.search(some, 5)[0])


def test_steps_do_not_wait_while_a_new_index_is_opened(run, make, monkeypatch):
    opening, gate = threading.Event(), threading.Event()

    def slow_open(folder, *others):
        if folder.name != "00000000":
            opening.set()
            assert gate.wait(TIMEOUT)
        return open_index(folder, *others)

    monkeypatch.setattr(index_manager, "open_index", slow_open)
    publish(run, 0)
    index = make()
    assert [search(index, step) for step in (0, 1)] == [0, 0]
    publish(run, 2)
    assert opening.wait(TIMEOUT)  # the new index is being opened
    assert [search(index, step) for step in range(2, 50)] == [0] * 48
    gate.set()
    steps = iter(range(50, 1_000_000))
    until(lambda: search(index, next(steps)) == 2)
    [_, (swapped, of)] = index.swaps
    assert of == 2 and swapped >= 50
    np.testing.assert_array_equal(index.current.query_params["w"], [2, 2, 2])


@pytest.mark.parametrize("wrong", [{"corpus": "other"}, {"width": 4}])
def test_an_index_of_another_corpus_or_width_is_refused(run, make, wrong, caplog):
    publish(run, 0)
    index = make()
    assert [search(index, step) for step in (0, 1)] == [0, 0]
    publish(run, 2, **wrong)
    until(lambda: "index of step 2 refused" in caplog.text)
    assert search(index, 2) == 0
    publish(run, 4)
    steps = iter(range(3, 1_000_000))
    until(lambda: search(index, next(steps)) == 4)
    assert [of for _, of in index.swaps] == [0, 4]


def test_a_damaged_index_is_refused(run, make, caplog):
    publish(run, 0)
    index = make()
    assert [search(index, step) for step in (0, 1)] == [0, 0]
    publish(RunDir(run.root / "elsewhere"), 2)
    damaged = run.root / "elsewhere" / PUBLISHED_INDEX / "00000002"
    vectors = damaged / "vectors.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"?")
    damaged.rename(run.published_index / "00000002")
    (run.published_index / "LATEST.json").unlink()
    until(lambda: "index of step 2 refused" in caplog.text)
    assert search(index, 2) == 0


def test_a_replay_follows_the_swap_log_and_ignores_newer_indexes(run, make):
    publish(run, 0, 2, 4)
    log = [(0, 0), (3, 2)]
    index = make(replay=log)
    assert [search(index, step) for step in range(1, 4)] == [0, 0, 2]
    assert index.swaps == log
    assert not run.swaps.exists()  # replayed swaps are not logged again


def test_an_index_is_kept_only_while_an_evaluation_may_search_it(run, make):
    publish(run, 0, 4)
    index, swapped = make("sync", refresh__every=4), 4
    for step in range(swapped + AHEAD + 1):
        search(index, step)
        past = range(max(0, step - AHEAD - 1), step)
        assert [index.searched_at(one).step for one in past] == [one - one % 4 for one in past]
    search(index, swapped + AHEAD + 1)
    assert [one.step for one in index._recent.values()] == [4]


def test_a_replay_can_start_between_two_swaps(run, make):
    publish(run, 0, 2, 4)
    index = make("sync", replay=[(0, 0), (2, 2), (4, 4)])
    assert [search(index, step) for step in (3, 4, 5)] == [2, 4, 4]
    assert index.swaps == [(0, 0), (2, 2), (4, 4)]
    assert staleness(index.swaps, 6) == {"mean": 0.5, "max": 1.0}


def test_a_storage_error_is_retried(run, make, monkeypatch, caplog):
    failures = iter([OSError(errno.EIO, "Input/output error")] * 2)

    def flaky(folder, *others):
        for failure in failures:
            raise failure
        return open_index(folder, *others)

    publish(run, 0)
    index = make()
    search(index, 0)
    monkeypatch.setattr(index_manager, "open_index", flaky)
    publish(run, 2)
    steps = iter(range(2, 1_000_000))
    until(lambda: search(index, next(steps)) == 2)
    assert caplog.text.count("Input/output error") == 1


def test_a_lasting_error_of_the_watcher_is_raised_in_the_training_step(run, make, monkeypatch):
    publish(run, 0)
    index = make(refresh__wait_seconds=0.1)
    search(index, 0)
    monkeypatch.setattr(index_manager, "open_index", lambda *arguments: 1 / 0)
    publish(run, 2)
    steps = iter(range(2, 1_000_000))
    with pytest.raises(ZeroDivisionError):
        until(lambda: search(index, next(steps)) == 2)


def test_an_index_opened_during_a_swap_is_kept(run):
    publish(run, 2, 4)
    opened = {step: open_index(run.published_index / step_name(step)) for step in (2, 4)}
    config = tiny_config().refresh
    watcher = IndexWatcher(run, opened.__getitem__, config, 0.01, threading.Event())
    watcher._open(2)
    ready = watcher.ready()
    watcher._open(4)
    watcher.drop(ready)
    assert watcher.ready() is opened[4]


def test_a_mesh_index_is_probed_at_the_swap(run, make, monkeypatch):
    """The probe runs on all devices, so all processes must start it at the same step."""
    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    searcher = build_searcher("mesh", vectors, tiny_config().search)
    threads = []

    def probed(index):
        threads.append(threading.current_thread())
        return probe_hash_of(index)

    monkeypatch.setattr(index_manager, "probe_hash_of", probed)
    index, rest = make(), ({"w": np.zeros(3)}, {"corpus_hash": CORPUS}, "{}")
    for step in (0, 2):
        publish_index(run, step, searcher, np.arange(5), vectors, *rest)
        until(lambda of=step: search(index, of) == of)
    assert threads == [threading.main_thread()] * 2


def test_newer_indexes_are_used_after_the_end_of_the_replay(run, make):
    publish(run, 0, 2, 4)
    index = make(replay=[(0, 0), (3, 2)])
    assert search(index, 3) == 2
    steps = iter(range(4, 1_000_000))
    until(lambda: search(index, next(steps)) == 4)
    assert [of for _, of in index.swaps] == [0, 2, 4]


def test_a_resumed_run_does_not_search_indexes_of_later_steps(run, make):
    """The run was killed after step 6 and resumes from a checkpoint at step 3."""
    publish(run, 0, 2, 6)
    first = make()
    assert search(first, 3) == 2
    first.close()  # only one trainer may write the lease
    index = make(replay=[(0, 0)])
    assert search(index, 3) == 0
    until(lambda: (ready := index._watcher.ready()) is not None and ready.step == 6)
    assert [search(index, step) for step in (4, 5, 6)] == [0, 0, 6]


def test_without_an_earlier_index_the_oldest_one_is_searched(run, make):
    publish(run, 4, 6)
    assert search(make(), 3) == 4


def test_sync_resumes_at_a_refresh_boundary_without_a_log_entry(run, make):
    publish(run, 0, 2, 4)
    index = make("sync", replay=[(0, 0), (2, 2)])
    assert [search(index, step) for step in (4, 5)] == [4, 4]
    assert index.swaps == [(0, 0), (2, 2), (4, 4)]


def test_sync_fails_if_the_index_it_needs_was_deleted(run, make):
    publish(run, 0, 4, 6)
    index = make("sync")
    assert search(index, 1) == 0
    with pytest.raises(RealmError, match=r"was deleted[\s\S]*of step 2 [\s\S]*refresh.mode=async"):
        search(index, 2)


def test_a_stale_index_is_warned_about_once_with_the_state_of_the_builder(run, make, caplog):
    publish(run, 0)
    beat(run, "index_builder", state="embedding", done=3, total=5)
    index = make(refresh__alarm_steps=4)
    for step in range(5):
        search(index, step)
    assert "old" not in caplog.text
    for step in range(5, 8):
        search(index, step)
    [warning] = [r.getMessage() for r in caplog.records if "alarm_steps" in r.getMessage()]
    assert "step 5 searches the index of step 0" in warning
    assert "'state': 'embedding'" in warning and "realm index --workdir=" in warning
    publish(run, 2)
    until(lambda: search(index, 8) == 2)
    assert "step 8 searches the index of step 2" in caplog.text


def test_staleness_counts_steps():
    swaps = [(0, 0), (4, 2), (6, 6)]
    ages = [0, 1, 2, 3, 2, 3, 0, 1]
    assert staleness(swaps, 8) == {"mean": np.mean(ages), "max": 3.0}


def test_retention_keeps_the_index_in_use(run, make):
    publish(run, 0, 2, 4)
    index = make("sync")
    search(index, 1)
    assert retain(run, PUBLISHED_INDEX, keep=1) == [2]


def test_the_wait_for_the_first_index_times_out_with_the_state_of_the_builder(make):
    with pytest.raises(RealmError, match="no heartbeat received"):
        make(refresh__wait_seconds=0.05).for_step(0)


def test_a_long_wait_logs_the_command_that_builds_the_index(run, make, monkeypatch, caplog):
    monkeypatch.setattr(index_wait, "LOG_AFTER_SECONDS", 0.0)
    with caplog.at_level("INFO"), pytest.raises(RealmError):
        make(refresh__wait_seconds=0.05, builder__poll_seconds=0.01).for_step(0)
    assert f"of any step, built by `realm index --workdir={run.workdir}`" in caplog.text


def test_the_stop_signal_ends_the_wait(make):
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(WaitInterrupted):
        make(stop=stop).for_step(0)


def test_a_step_waits_if_the_index_is_too_stale(run, make):
    publish(run, 0)
    index = make(refresh__every=3, refresh__max_staleness=4, builder__poll_seconds=0.01)
    assert [search(index, step) for step in range(5)] == [0] * 5
    later = threading.Timer(0.3, publish, (run, 3))
    later.start()
    assert search(index, 5) == 3
    later.join()
    assert [search(index, step) for step in (6, 7)] == [3, 3]
    assert index.swaps == [(0, 0), (5, 3)]


def test_the_wait_for_a_newer_index_can_be_stopped_and_times_out(run, make):
    publish(run, 0)
    stop = threading.Event()
    limits = {"refresh__max_staleness": 2, "builder__poll_seconds": 0.01}
    index = make(stop=stop, **limits)
    search(index, 2)
    stop.set()
    with pytest.raises(WaitInterrupted):
        search(index, 3)
    impatient = make(refresh__wait_seconds=0.05, **limits)
    search(impatient, 2)
    with pytest.raises(RealmError, match="an index of step 1 or newer within"):
        search(impatient, 3)


def test_a_resumed_run_does_not_start_with_a_stale_index(run, make):
    publish(run, 0)
    index = make(refresh__max_staleness=2, builder__poll_seconds=0.01)
    later = threading.Timer(0.3, publish, (run, 6))
    later.start()
    assert search(index, 7) == 6
    later.join()


@pytest.mark.parametrize(
    ("mode", "view", "replay", "steps", "expected"),
    [
        ("async", "late", [], [5], [4]),
        ("async", "newest", [[0, 0], [3, 2]], [1, 3], [0, 2]),
        ("async", "same", [[0, 0], [3, 1]], [1, 3], [0, 2]),
        ("sync", "newest", [], [1, 2], [0, 2]),
    ],
    ids=["first index", "replay", "replay of a deleted index", "boundary"],
)
@pytest.mark.slow
def test_process_0_decides_which_index_all_processes_open(
    run, tmp_path, mode, view, replay, steps, expected
):
    """Process 1 first sees no index, or only the newest; it waits, and reports none as deleted."""
    publish(run, 0, 2, 4)
    arguments = (view, json.dumps({"refresh__mode": mode}), json.dumps(replay), json.dumps(steps))
    with two_processes(tmp_path, *arguments) as job:
        assert searched(job) == [expected] * 2


@pytest.mark.slow
def test_no_clock_of_a_process_limits_the_wait(run, tmp_path):
    with two_processes(tmp_path, "fast_clock", "{}", "[]", "[0]") as job:
        while not all("joined" in log.read_text() for log in job.logs):
            assert all(process.poll() is None for process in job.processes)
            time.sleep(0.05)
        time.sleep(1.0)  # some polls, at each of which the clock of process 1 is past the limit
        publish(run, 0)
        assert searched(job) == [[0], [0]]


@contextlib.contextmanager
def two_processes(folder, *arguments):
    script = Path(__file__).parent / "index_process.py"
    job = PeerProcesses(folder, script, 2, folder, *arguments)
    try:
        yield job
    finally:
        job.kill()


def searched(job):
    """The index steps that each process searched, after it ended."""
    return [
        json.loads(line.removeprefix("searched "))
        for output in job.wait(0, 0)
        for line in output.splitlines()
        if line.startswith("searched ")
    ]
