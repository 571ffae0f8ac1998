"""One trainer and one builder a run: a second one waits, or is refused by name."""

import os
import threading

import pytest

from realm_jax.errors import RealmError, Stopped
from realm_jax.storage.job_lock import alone
from realm_jax.storage.layout import RunDir


def test_a_second_one_is_refused_and_the_first_is_named(tmp_path):
    run, never = RunDir(tmp_path), threading.Event()
    with (
        alone(run, "trainer", never),
        pytest.raises(RealmError, match=f"another trainer[\\s\\S]*{os.getpid()}"),
        alone(run, "trainer", never, patience=0.0),
    ):
        pass
    with alone(run, "trainer", never, patience=0.0):
        pass


def test_trainer_and_builder_are_not_in_each_other_s_way(tmp_path):
    run, never = RunDir(tmp_path), threading.Event()
    with alone(run, "trainer", never), alone(run, "index_builder", never, patience=0.0):
        pass


def test_a_second_one_goes_on_when_the_first_has_ended(tmp_path, caplog):
    run, never, order = RunDir(tmp_path), threading.Event(), []
    caplog.set_level("INFO")

    def second():
        with alone(run, "index_builder", never):
            order.append("second")

    thread = threading.Thread(target=second)
    with alone(run, "index_builder", never):
        thread.start()
        while "waiting for its end" not in caplog.text:
            assert thread.is_alive()
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]


def test_the_stop_signal_ends_the_waiting(tmp_path):
    run, stop = RunDir(tmp_path), threading.Event()
    stop.set()
    with (
        alone(run, "trainer", threading.Event()),
        pytest.raises(Stopped, match="in stage start"),
        alone(run, "trainer", stop),
    ):
        pass
