"""A training step waits for an index: time limits, staleness and the stop signal."""

import threading

import pytest
from searched_indexes import publish, search
from support.tiny_corpus import tiny_config

from realm_jax.errors import RealmError
from realm_jax.storage import commit
from realm_jax.storage.heartbeat import beat
from realm_jax.trainer import index_wait
from realm_jax.trainer.index_wait import IndexWait, WaitInterrupted


def test_the_wait_for_the_first_index_times_out_with_the_state_of_the_builder(make_manager):
    with pytest.raises(RealmError, match="no heartbeat received"):
        make_manager(refresh__wait_seconds=0.05).for_step(0)


def wait_for_five_polls(run, work):
    """The index step that was found, and the number of polls; `work(number)` runs between polls.

    At most five polls may show no progress of the builder.
    """
    count = 0

    def pause(seconds):
        nonlocal count
        count += 1
        work(count)

    config = tiny_config(refresh__wait_seconds=5.0)
    wait = IndexWait(run, config.refresh, 1.0, lambda: False, pause, lambda: None)
    found = wait.until(
        0, "of any step", lambda: commit.latest(run.published_index), lambda found: found[0]
    )
    return found, count


def test_the_wait_does_not_end_while_the_builder_makes_progress(run):
    def work(number):
        beat(run, "index_builder", snapshot_step=0, done=number // 4, total=10)
        beat(run, "index_builder-1", snapshot_step=0, done=30, total=30)  # waits for the other
        if number == 40:
            publish(run, 3)

    assert wait_for_five_polls(run, work) == (3, 40)


def test_a_builder_that_begins_again_makes_progress(run):
    """For example because the trainer was started with other `search` settings."""
    beat(run, "index_builder", snapshot_step=0, done=90, total=100)

    def work(number):
        beat(run, "index_builder", snapshot_step=0, done=number // 4, total=100)
        if number == 40:
            publish(run, 3)

    assert wait_for_five_polls(run, work) == (3, 40)


def test_a_builder_that_repeats_the_same_work_makes_no_progress(run):
    """Such as one that is started again each time it runs out of memory."""

    def work(number):
        assert number < 20
        beat(run, "index_builder", snapshot_step=0, done=number % 3, total=100)

    with pytest.raises(RealmError, match="no index was published in time"):
        wait_for_five_polls(run, work)


@pytest.mark.parametrize("fields", [{"done": 7, "eta_s": 154.0736}, {}])
def test_the_wait_ends_if_the_builder_lives_without_progress(run, fields):
    seen = []

    def work(number):
        seen.append(number)
        beat(run, "index_builder", snapshot_step=0, **fields)

    with pytest.raises(
        RealmError, match=r"(?s)last heartbeat .* s ago.*--worker=i/n.*wait_seconds$"
    ) as error:
        wait_for_five_polls(run, work)
    assert len(seen) < 10
    assert "154.07" not in str(error.value)


def test_a_long_wait_logs_the_command_that_builds_the_index(run, make_manager, monkeypatch, caplog):
    monkeypatch.setattr(index_wait, "LOG_AFTER_SECONDS", 0.0)
    with caplog.at_level("INFO"), pytest.raises(RealmError):
        make_manager(refresh__wait_seconds=0.05, builder__poll_seconds=0.01).for_step(0)
    assert f"of any step, built by `realm index --workdir={run.workdir}`" in caplog.text


def test_the_stop_signal_ends_the_wait(make_manager):
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(WaitInterrupted):
        make_manager(stop=stop).for_step(0)


def test_a_step_waits_if_the_index_is_too_stale(run, make_manager):
    publish(run, 0)
    index = make_manager(refresh__every=3, refresh__max_staleness=4, builder__poll_seconds=0.01)
    assert [search(index, step) for step in range(5)] == [0] * 5
    later = threading.Timer(0.3, publish, (run, 3))
    later.start()
    assert search(index, 5) == 3
    later.join()
    assert [search(index, step) for step in (6, 7)] == [3, 3]
    assert index.swaps == [(0, 0), (5, 3)]


def test_the_wait_for_a_newer_index_can_be_stopped_and_times_out(run, make_manager):
    publish(run, 0)
    stop = threading.Event()
    limits = {"refresh__max_staleness": 2, "builder__poll_seconds": 0.01}
    index = make_manager(stop=stop, **limits)
    search(index, 2)
    stop.set()
    with pytest.raises(WaitInterrupted):
        search(index, 3)
    impatient = make_manager(refresh__wait_seconds=0.05, **limits)
    search(impatient, 2)
    with pytest.raises(RealmError, match="an index of step 1 or newer, or progress"):
        search(impatient, 3)


def test_a_resumed_run_does_not_start_with_a_stale_index(run, make_manager):
    publish(run, 0)
    index = make_manager(refresh__max_staleness=2, builder__poll_seconds=0.01)
    later = threading.Timer(0.3, publish, (run, 6))
    later.start()
    assert search(index, 7) == 6
    later.join()


def test_a_resumed_run_with_a_lower_bound_searches_an_index_of_a_later_step(run, make_manager):
    """The builder has built the newest snapshot, so it publishes none of an earlier step."""
    publish(run, 0, 8)
    impatient = {"refresh__wait_seconds": 30.0, "builder__poll_seconds": 0.01}
    index = make_manager(replay=[(0, 0)], refresh__max_staleness=2, **impatient)
    assert [search(index, step) for step in (1, 2, 3)] == [0, 0, 8]
    index.close()  # only one trainer may write the lease
    assert search(make_manager(refresh__max_staleness=2, **impatient), 3) == 8
