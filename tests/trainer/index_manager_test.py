"""Which index each training step searches: swaps, replays and refused indexes."""

import errno
import json
import threading

import numpy as np
import pytest
from searched_indexes import CORPUS, TIMEOUT, publish, search, until
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.audit_log import probe_hash_of
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.errors import RealmError
from realm_jax.parallel import hosts
from realm_jax.retrieval.search_process import MIN_ROWS, SearchProcess
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.heartbeat import beat
from realm_jax.storage.layout import PUBLISHED_INDEX, RunDir, step_name
from realm_jax.storage.leases import leased, retain
from realm_jax.trainer import index_manager
from realm_jax.trainer.index_watcher import IndexWatcher
from realm_jax.trainer.prefetch import AHEAD
from realm_jax.trainer.swap_log import staleness


def test_sync_waits_for_the_index_of_each_snapshot(run, make_manager):
    publish(run, 0, 2, 4)
    index = make_manager("sync")
    assert [search(index, step) for step in range(6)] == [0, 0, 2, 2, 4, 4]
    assert index.swaps == [(0, 0), (2, 2), (4, 4)]
    lines = run.swaps.read_text().splitlines()
    assert [(r["step"], r["index_step"]) for r in map(json.loads, lines)] == index.swaps


def test_an_index_that_blocks_other_threads_is_loaded_in_another_process(run, make_manager):
    vectors = np.random.default_rng(0).normal(size=(MIN_ROWS, 8)).astype(np.float32)
    searcher = build_searcher("scann", vectors, tiny_config().search)
    rows, fields = np.arange(MIN_ROWS), {"corpus_hash": CORPUS}
    publish_index(run, 0, searcher, rows, vectors, {"w": np.zeros(3)}, fields, "{}")
    found = make_manager().for_step(0).searcher
    assert isinstance(found, SearchProcess)
    some = vectors[:9]
    np.testing.assert_array_equal(found.search(some, 5)[0], searcher.search(some, 5)[0])


def test_steps_do_not_wait_while_a_new_index_is_opened(run, make_manager, monkeypatch):
    opening, gate = threading.Event(), threading.Event()

    def slow_open(folder, *others):
        if folder.name != "00000000":
            opening.set()
            assert gate.wait(TIMEOUT)
        return open_index(folder, *others)

    monkeypatch.setattr(index_manager, "open_index", slow_open)
    publish(run, 0)
    index = make_manager()
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
def test_an_index_of_another_corpus_or_width_is_refused(run, make_manager, wrong, caplog):
    publish(run, 0)
    index = make_manager()
    assert [search(index, step) for step in (0, 1)] == [0, 0]
    publish(run, 2, **wrong)
    until(lambda: "index of step 2 refused" in caplog.text)
    assert search(index, 2) == 0
    publish(run, 4)
    steps = iter(range(3, 1_000_000))
    until(lambda: search(index, next(steps)) == 4)
    assert [of for _, of in index.swaps] == [0, 4]


def test_an_index_that_another_process_has_refused_does_not_stop_later_ones(
    run, make_manager, monkeypatch
):
    """This process opens it only after the exchange in which the others have dropped it."""
    monkeypatch.setattr(hosts, "process_count", lambda: 3)
    publish(run, 0)
    index = make_manager()
    index.for_step(0)
    index.accept([[2, None], [None, 2], index.offer(1)])
    publish(run, 2)
    until(lambda: index.offer(2) == [2, None])
    index.accept([[None, None], [None, 2], index.offer(2)])
    publish(run, 4)
    until(lambda: index.offer(5) == [4, None])
    index.accept([[4, None], [4, 2], index.offer(5)])
    assert index.for_step(5).step == 4


def test_processes_swap_at_the_step_by_which_all_have_opened_an_index(
    run, make_manager, monkeypatch
):
    monkeypatch.setattr(hosts, "process_count", lambda: 2)
    publish(run, 0)
    index = make_manager()
    index.for_step(0)
    publish(run, 2)
    until(lambda: index.offer(3) == [2, None])
    index.accept([index.offer(3), [None, None]])
    assert index.for_step(3).step == 0
    index.accept([index.offer(4), [2, None]])
    assert index.for_step(4).step == 2
    publish(run, 4)
    until(lambda: index.offer(5) == [4, None])


def test_a_damaged_index_is_refused(run, make_manager, caplog):
    publish(run, 0)
    index = make_manager()
    assert [search(index, step) for step in (0, 1)] == [0, 0]
    publish(RunDir(run.root / "elsewhere"), 2)
    damaged = run.root / "elsewhere" / PUBLISHED_INDEX / "00000002"
    vectors = damaged / "vectors.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"?")
    damaged.rename(run.published_index / "00000002")
    (run.published_index / "LATEST.json").unlink()
    until(lambda: "index of step 2 refused" in caplog.text)
    assert [search(index, step) for step in (2, 3)] == [0, 0]  # what 2 offers, 3 would search


def test_a_replay_follows_the_swap_log_and_ignores_newer_indexes(run, make_manager):
    publish(run, 0, 2, 4)
    log = [(0, 0), (3, 2)]
    index = make_manager(replay=log)
    assert [search(index, step) for step in range(1, 4)] == [0, 0, 2]
    assert index.swaps == log
    assert not run.swaps.exists()  # replayed swaps are not logged again


def test_an_index_is_kept_only_while_an_evaluation_may_search_it(run, make_manager):
    publish(run, 0, 4)
    index, swapped = make_manager("sync", refresh__every=4), 4
    for step in range(swapped + AHEAD + 1):
        search(index, step)
        past = range(max(0, step - AHEAD - 1), step)
        assert [index.searched_at(one).step for one in past] == [one - one % 4 for one in past]
    search(index, swapped + AHEAD + 1)
    assert [one.step for one in index._recent.values()] == [4]


def test_a_replay_can_start_between_two_swaps(run, make_manager):
    publish(run, 0, 2, 4)
    index = make_manager("sync", replay=[(0, 0), (2, 2), (4, 4)])
    assert [search(index, step) for step in (3, 4, 5)] == [2, 4, 4]
    assert index.swaps == [(0, 0), (2, 2), (4, 4)]
    assert staleness(index.swaps, 6) == {"mean": 0.5, "max": 1.0}


def test_a_storage_error_is_retried(run, make_manager, monkeypatch, caplog):
    failures = iter([OSError(errno.EIO, "Input/output error")] * 2)

    def flaky(folder, *others):
        for failure in failures:
            raise failure
        return open_index(folder, *others)

    publish(run, 0)
    index = make_manager()
    search(index, 0)
    monkeypatch.setattr(index_manager, "open_index", flaky)
    publish(run, 2)
    steps = iter(range(2, 1_000_000))
    until(lambda: search(index, next(steps)) == 2)
    assert caplog.text.count("Input/output error") == 1


def test_a_lasting_error_of_the_watcher_is_raised_in_the_training_step(
    run, make_manager, monkeypatch
):
    publish(run, 0)
    index = make_manager(refresh__wait_seconds=0.1)
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


def test_a_mesh_index_is_probed_at_the_swap(run, make_manager, monkeypatch):
    """The probe runs on all devices, so all processes must start it at the same step."""
    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    searcher = build_searcher("mesh", vectors, tiny_config().search)
    threads = []

    def probed(index):
        threads.append(threading.current_thread())
        return probe_hash_of(index)

    monkeypatch.setattr(index_manager, "probe_hash_of", probed)
    index, rest = make_manager(), ({"w": np.zeros(3)}, {"corpus_hash": CORPUS}, "{}")
    for step in (0, 2):
        publish_index(run, step, searcher, np.arange(5), vectors, *rest)
        until(lambda of=step: search(index, of) == of)
    assert threads == [threading.main_thread()] * 2


def test_newer_indexes_are_used_after_the_end_of_the_replay(run, make_manager):
    publish(run, 0, 2, 4)
    index = make_manager(replay=[(0, 0), (3, 2)])
    assert search(index, 2) == 0
    assert "index watcher" not in {thread.name for thread in threading.enumerate()}
    assert search(index, 3) == 2
    steps = iter(range(4, 1_000_000))
    until(lambda: search(index, next(steps)) == 4)
    assert [of for _, of in index.swaps] == [0, 2, 4]


def test_a_replay_whose_index_was_deleted_forgets_its_later_swaps(run, make_manager, caplog):
    publish(run, 0, 4)
    index = make_manager(replay=[(0, 0), (3, 2), (6, 4)])
    assert [search(index, step) for step in (2, 5)] == [0, 4]
    assert "index of step 2, which this run searched from step 3 on, was deleted" in caplog.text
    assert index.swaps == [(0, 0), (3, 2), (5, 4)]


def test_an_index_that_is_too_old_itself_ends_no_wait(run, make_manager):
    publish(run, 0, 4)
    index = make_manager(replay=[(0, 0)], refresh__max_staleness=6, refresh__wait_seconds=TIMEOUT)
    assert search(index, 6) == 0
    until(lambda: index._watcher.ready() is not None)
    later = threading.Timer(0.5, publish, (run, 9))
    later.start()
    assert search(index, 11) == 9
    later.join()


def test_a_resumed_run_does_not_search_indexes_of_later_steps(run, make_manager):
    """The run was killed after step 6 and resumes from a checkpoint at step 3."""
    publish(run, 0, 2, 6)
    first = make_manager()
    assert search(first, 3) == 2
    first.close()  # only one trainer may write the lease
    index = make_manager(replay=[(0, 0)])
    assert search(index, 3) == 0
    until(lambda: (ready := index._watcher.ready()) is not None and ready.step == 6)
    assert [search(index, step) for step in (4, 5, 6)] == [0, 0, 6]


def test_without_an_earlier_index_the_oldest_one_is_searched(run, make_manager):
    publish(run, 4, 6)
    assert search(make_manager(), 3) == 4


def test_sync_resumes_at_a_refresh_boundary_without_a_log_entry(run, make_manager):
    publish(run, 0, 2, 4)
    index = make_manager("sync", replay=[(0, 0), (2, 2)])
    assert [search(index, step) for step in (4, 5)] == [4, 4]
    assert index.swaps == [(0, 0), (2, 2), (4, 4)]


def test_sync_fails_if_the_index_it_needs_was_deleted(run, make_manager):
    publish(run, 0, 4, 6)
    index = make_manager("sync")
    assert search(index, 1) == 0
    with pytest.raises(RealmError, match=r"was deleted[\s\S]*of step 2 [\s\S]*refresh.mode=async"):
        search(index, 2)


def test_sync_waits_although_an_index_of_an_earlier_corpus_is_newer(run, make_manager):
    publish(run, 0)
    publish(run, 4, corpus="earlier")
    index = make_manager("sync", refresh__wait_seconds=0.2)
    assert search(index, 1) == 0
    with pytest.raises(RealmError, match="of step 2") as error:
        search(index, 2)
    assert "was deleted" not in str(error.value)


def test_a_stale_index_is_warned_about_once_with_the_state_of_the_builder(
    run, make_manager, caplog
):
    publish(run, 0)
    beat(run, "index_builder", state="embedding", done=3, total=5)
    index = make_manager(refresh__alarm_steps=4)
    for step in range(5):
        search(index, step)
    assert "old" not in caplog.text
    for step in range(5, 8):
        search(index, step)
    [warning] = [r.getMessage() for r in caplog.records if "alarm_steps" in r.getMessage()]
    assert "step 5 searches the index of step 0" in warning
    assert "state embedding" in warning and "realm index --workdir=" in warning
    publish(run, 2)
    until(lambda: search(index, 8) == 2)
    assert "step 8 searches the index of step 2" in caplog.text


def test_staleness_counts_steps():
    swaps = [(0, 0), (4, 2), (6, 6)]
    ages = [0, 1, 2, 3, 2, 3, 0, 1]
    assert staleness(swaps, 8) == {"mean": np.mean(ages), "max": 3.0}


def test_retention_keeps_the_index_in_use(run, make_manager):
    publish(run, 0, 2, 4)
    index = make_manager("sync")
    search(index, 1)
    assert retain(run, PUBLISHED_INDEX, keep=1) == [2]


def test_required_indexes_and_those_of_recent_batches_are_leased(run, make_manager):
    publish(run, *range(0, 12, 2))
    index = make_manager("sync", required=lambda: {0})
    assert [search(index, step) for step in range(1, 11, 2)] == [0, 2, 4, 6, 8]
    assert search(index, 10) == 10
    assert leased(run, PUBLISHED_INDEX) == {0, 4, 6, 8, 10}


def test_the_index_in_use_is_leased_during_a_replay(run, make_manager):
    publish(run, *range(0, 12, 2))
    index = make_manager("sync", replay=[(step, step) for step in range(0, 10, 2)])
    assert [search(index, step) for step in (1, 2)] == [0, 2]
    assert leased(run, PUBLISHED_INDEX) == {0, 2, 4, 6, 8}
