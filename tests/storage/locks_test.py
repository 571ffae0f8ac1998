"""One process holds a lock at a time; the lock of an expired holder can be acquired."""

import errno
import fcntl
import os
import threading
import time
from functools import partial

import pytest
from etils import epath
from support.tiny_corpus import tiny_config

from realm_jax.errors import RealmError, Stopped
from realm_jax.storage import files, locks, sealed
from realm_jax.storage.layout import RunDir
from realm_jax.storage.locks import Lock, job_lock, still_allowed

DEADLINE_SECONDS = 20.0


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path)


@pytest.fixture(params=["flock", "no flock"])
def run(request, tmp_path, monkeypatch):
    """A run folder on a file system with and without `flock`."""
    if request.param == "no flock":

        def unsupported(*_):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", unsupported)
    return RunDir(tmp_path)


def test_lock_is_held_until_it_is_released(folder):
    first, second = Lock(folder, "it"), Lock(folder, "it")
    assert first.acquire() and first.acquire() and not second.acquire()
    assert second.holder()["pid"] == os.getpid()
    first.release()
    assert second.holder() is None and second.acquire() and not first.acquire()
    assert files.list_names(folder) == ["clock_it", "it.lock.1"]


def age(path, seconds):
    """Sets the timestamp of a lock file back by so many seconds."""
    stamped = path.stat().mtime - seconds
    os.utime(path, (stamped, stamped))


def test_lock_expires_unless_renewed(folder):
    first, second = (Lock(folder, "it", seconds=10.0) for _ in range(2))
    assert first.acquire()
    age(folder / "it.lock.0", 9.0)
    assert not second.acquire()
    first.renew()
    age(folder / "it.lock.0", 9.0)
    assert not second.acquire()
    age(folder / "it.lock.0", 1.5)
    assert second.acquire()


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_expiry_does_not_depend_on_the_clocks_of_the_machines(folder, monkeypatch, wrong):
    """Holder and candidate compare timestamps of the storage."""
    first, second, now = Lock(folder, "it"), Lock(folder, "it"), time.time
    assert first.acquire()
    monkeypatch.setattr(time, "time", lambda: now() + wrong)
    assert not second.acquire()
    age(folder / "it.lock.0", 61.0)
    assert second.acquire()
    with pytest.raises(RealmError, match="taken over"):
        first.assert_held()


def wait_for(condition):
    until = time.monotonic() + DEADLINE_SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize("kind", [OSError, type("ErrorOfAnObjectStore", (Exception,), {})])
def test_failed_renewal_is_logged_once_and_retried(folder, monkeypatch, caplog, kind):
    write, failures = sealed.write, [kind("no route to the storage")] * 3
    first, second = (Lock(folder, "it", seconds=4.0) for _ in range(2))

    def fail_three_times(path, content):
        if failures:
            raise failures.pop()
        write(path, content)

    assert first.acquire()
    monkeypatch.setattr(sealed, "write", fail_three_times)
    with first.renewed():
        wait_for(lambda: not failures)
        wait_for(lambda: second.holder() is not None)
        assert not second.acquire() and not first.lost.is_set()
    [logged] = [record.getMessage() for record in caplog.records]
    assert "it.lock; retrying to renew it" in logged and "no route to the storage" in logged


def test_holder_that_renews_too_late_detects_that_it_lost_the_lock(folder):
    first, second, third = (Lock(folder, "it", seconds=9.0) for _ in range(3))
    assert first.acquire()
    first.assert_held()
    age(folder / "it.lock.0", 10.0)
    assert second.acquire()
    first.renew()
    assert first.lost.is_set()
    with pytest.raises(RealmError, match=r"taken over[\s\S]*it\.lock[\s\S]*same command again"):
        first.assert_not_lost()
    assert not third.acquire()
    assert files.list_names(folder) == ["clock_it", "it.lock.1"]
    second.release()
    assert first.acquire()
    first.assert_held()


def test_holder_that_was_suspended_asks_the_storage_before_it_publishes(folder):
    first, second = Lock(folder, "it"), Lock(folder, "it")
    assert first.acquire()
    age(folder / "it.lock.0", 61.0)
    assert second.acquire()
    with pytest.raises(RealmError, match="taken over"):
        first.assert_held()  # no renewal has been tried since


def test_process_that_was_suspended_between_listing_and_creating_does_not_get_the_lock(
    folder, monkeypatch
):
    first, second, third, late = (Lock(folder, "it") for _ in range(4))
    assert first.acquire()
    first.release()
    numbers = late._numbers

    def suspended():
        listed = numbers()
        monkeypatch.undo()
        assert second.acquire()
        second.release()
        assert third.acquire()  # deletes the file of the second, so its number is free
        return listed

    monkeypatch.setattr(late, "_numbers", suspended)
    assert not late.acquire()
    third.assert_held()
    assert files.list_names(folder) == ["clock_it", "it.lock.2"]
    third.release()
    assert late.acquire()


def test_one_of_many_threads_acquires_the_lock(folder):
    candidates = [Lock(folder, "it") for _ in range(16)]
    acquired = []
    threads = [
        threading.Thread(target=lambda lock=lock: acquired.append(lock.acquire()))
        for lock in candidates
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert acquired.count(True) == 1


def test_incomplete_lock_file_counts_as_held_until_it_expires(folder):
    (folder / "it.lock.0").write_text("{")
    assert not Lock(folder, "it").acquire()
    assert Lock(folder, "it", clock=lambda: (folder / "it.lock.0").stat().mtime + 61.0).acquire()


def test_second_job_is_refused_with_the_pid_of_the_first(run):
    never = threading.Event()
    with (
        job_lock(run, "trainer", never),
        pytest.raises(RealmError, match=f"another trainer[\\s\\S]*{os.getpid()}"),
        job_lock(run, "trainer", never, wait_seconds=0.0),
    ):
        pass
    with job_lock(run, "trainer", never, wait_seconds=0.0):
        pass


def test_trainer_and_builder_run_at_the_same_time(run):
    never = threading.Event()
    with (
        job_lock(run, "trainer", never),
        job_lock(run, "index_builder", never, wait_seconds=0.0),
    ):
        pass


def test_second_job_starts_when_the_first_has_ended(run, caplog):
    never, order = threading.Event(), []
    caplog.set_level("INFO")

    def second():
        with job_lock(run, "index_builder", never):
            order.append("second")

    thread = threading.Thread(target=second)
    with job_lock(run, "index_builder", never):
        thread.start()
        wait_for(lambda: "waiting until it ends" in caplog.text)
        order.append("first")
    thread.join(DEADLINE_SECONDS)
    assert order == ["first", "second"]


def test_stop_signal_ends_the_wait(run):
    stop = threading.Event()
    stop.set()
    with (
        job_lock(run, "trainer", threading.Event()),
        pytest.raises(Stopped, match="in stage start"),
        job_lock(run, "trainer", stop),
    ):
        pass


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS])
def test_file_system_without_flock_uses_an_expiring_lock_file(tmp_path, monkeypatch, caplog, code):
    run = RunDir(tmp_path)

    def unsupported(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with job_lock(run, "trainer", threading.Event()) as stop:
        assert not stop.is_set()
        assert files.list_names(run.leases) == ["trainer.lock.0"]
        stop.assert_held()
    assert f"{os.strerror(code)}; using a lock file that expires" in caplog.text


def test_overtaken_job_is_not_allowed_to_publish(tmp_path, monkeypatch):
    run = RunDir(tmp_path)

    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with (
        pytest.raises(RealmError, match="another process has taken over"),
        job_lock(run, "trainer", threading.Event()) as stop,
    ):
        still_allowed(stop)()
        age(run.leases / "trainer.lock.0", 61.0)
        assert Lock(run.leases, "trainer").acquire()
        assert not stop.is_set()  # no renewal has been tried since
        still_allowed(stop)()
        raise AssertionError("the loss of the lock was not detected")


def test_other_errors_of_flock_name_the_file(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    with (
        pytest.raises(RealmError, match=r"trainer\.lock[\s\S]*Input/output error"),
        job_lock(RunDir(tmp_path), "trainer", threading.Event()),
    ):
        pass


def test_lost_lock_ends_the_block_with_an_error(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    monkeypatch.setattr(files, "is_local", lambda _: False)
    monkeypatch.setattr(files, "create", lambda path, data: bool(path.write_bytes(data)) or True)
    monkeypatch.setattr(files, "write_bytes", lambda path, data: path.write_bytes(data))
    monkeypatch.setattr(locks, "Lock", partial(Lock, seconds=0.2))
    run.leases.mkdir(parents=True)
    with (
        pytest.raises(RealmError, match="another process has taken over"),
        job_lock(run, "trainer", threading.Event()) as stop,
    ):
        assert Lock(run.leases, "trainer", clock=lambda: time.time() + 120.0).acquire()
        until = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < until:
            stop.wait(0.01)
        raise AssertionError("the loss of the lock was not detected")


def test_second_trainer_is_refused_before_it_writes(tiny, tmp_path, monkeypatch):
    from realm_jax.trainer import run as trainer

    run = RunDir(tmp_path)
    monkeypatch.setattr(trainer, "job_lock", partial(job_lock, wait_seconds=0.0))
    with job_lock(run, "trainer", threading.Event()):
        before = files.list_files(run.root)
        with pytest.raises(RealmError, match="another trainer works on this run") as error:
            trainer.run(str(tmp_path), tiny_config(tiny.folder), threading.Event())
        assert "choose another --workdir" in str(error.value)
        assert files.list_files(run.root) == before
