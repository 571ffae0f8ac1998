"""Retention, leases, following and heartbeats, also across processes."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.storage import commit, files, integrity, leases
from realm_jax.storage.follow import clear_end, ended, follow, mark_end
from realm_jax.storage.heartbeat import beat, last_beat
from realm_jax.storage.layout import MANIFEST, RunDir, step_name
from realm_jax.storage.leases import Lease, leased, retain

WRITER = Path(__file__).with_name("writer_process.py")


def publish(run, *steps):
    for step in steps:
        commit.publish(
            run.snapshots,
            step,
            lambda folder: files.write_bytes(folder / "a", b"data"),
            {"kind": "snapshot"},
        )


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path)
    publish(run, 1, 2, 3, 4, 5)
    return run


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_retention_deletes_the_oldest(run):
    assert retain(run, "snapshots", 2) == [1, 2, 3]
    assert commit.steps(run.snapshots) == [4, 5]
    assert files.list_names(run.snapshots) == [step_name(4), step_name(5), "LATEST.json"]
    assert retain(run, "snapshots", 0) == [4]  # never the newest
    assert retain(run, "published_index", 2) == []


def age(lease, seconds):
    """Sets the timestamp of a lease file back by so many seconds."""
    stamped = lease.path.stat().mtime - seconds
    os.utime(lease.path, (stamped, stamped))


def test_retention_keeps_leased_steps_until_the_lease_expires(run):
    first, second = Lease(run, "a", seconds=60.0), Lease(run, "b")
    first.hold({"snapshots": [1, 2], "published_index": [3]})
    second.hold({"snapshots": [2]})
    assert leased(run, "snapshots") == {1, 2}
    assert leased(run, "published_index") == {3}
    assert retain(run, "snapshots", 1) == [3, 4]
    age(first, 59)
    first.renew()
    age(first, 50)
    assert retain(run, "snapshots", 1) == []
    age(first, 11)
    assert retain(run, "snapshots", 1) == [1]  # the first has expired
    second.release()
    assert retain(run, "snapshots", 1) == [2]


def test_required_steps_are_kept_without_a_lease(run):
    assert retain(run, "snapshots", 1, required={2, 3}) == [1, 4]
    assert commit.steps(run.snapshots) == [2, 3, 5]


def test_lease_is_renewed_while_its_holder_waits(run):
    """For example for a compilation, an evaluation or an index, longer than the lease lasts."""
    lease = Lease(run, "a", seconds=0.4)
    with lease.renewed():
        lease.hold({"snapshots": [1]})
        age(lease, 60)
        until = time.monotonic() + 20.0
        while leased(run, "snapshots") != {1}:
            assert time.monotonic() < until
            time.sleep(0.01)
    age(lease, 60)
    time.sleep(0.5)
    assert leased(run, "snapshots") == set()


def test_lease_that_holds_nothing_is_not_renewed(run):
    lease = Lease(run, "a", seconds=0.04)
    with lease.renewed():
        lease.hold({"snapshots": [1]})
        lease.release()
        time.sleep(0.2)
    assert not lease.path.exists()


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_lease_age_does_not_depend_on_the_clocks_of_the_machines(run, monkeypatch, wrong):
    """Reader and writer use the time of the storage, not that of their machines."""
    now = time.time
    Lease(run, "a").hold({"snapshots": [1]})
    monkeypatch.setattr(time, "time", lambda: now() + wrong)
    assert retain(run, "snapshots", 1) == [2, 3, 4]
    monkeypatch.undo()
    publish(run, 6)
    monkeypatch.setattr(time, "time", lambda: now() + wrong)
    Lease(run, "b").hold({"snapshots": [5]})
    monkeypatch.undo()
    assert retain(run, "snapshots", 1) == []
    age(Lease(run, "b"), leases.SECONDS + 1)
    assert retain(run, "snapshots", 1) == [5]


def test_retention_of_both_jobs_may_run_at_the_same_time(run):
    """Each writes another file to read the time of the storage."""
    Lease(run, "a").hold({"snapshots": [1]})
    kinds = ["snapshots", "published_index", "checkpoints/ict", "checkpoints/realm"]
    with ThreadPoolExecutor(len(kinds)) as pool:
        for found in pool.map(lambda kind: [leased(run, kind) for _ in range(50)], kinds):
            assert len(found) == 50


def test_manifest_of_a_leased_step_is_never_deleted(run, monkeypatch):
    Lease(run, "a").hold({"snapshots": [1]})
    touched, delete_file = [], files.delete_file
    monkeypatch.setattr(
        files, "delete_file", lambda path: (touched.append(path), delete_file(path))
    )
    retain(run, "snapshots", 3)
    assert touched == [run.snapshots / step_name(2) / MANIFEST]


def test_damaged_lease_stops_deletion_until_it_expires(run):
    Lease(run, "a").hold({"snapshots": [1]})
    path = run.leases / "a.json"
    path.write_bytes(path.read_bytes()[:-9])
    assert retain(run, "snapshots", 1) == []
    clock = Clock()
    clock.now = path.stat().mtime + leases.SECONDS + 1
    assert retain(run, "snapshots", 1, clock=clock) == [1, 2, 3, 4]


def test_manifest_is_restored_if_a_lease_appears_during_deletion(run, monkeypatch):
    delete_file = files.delete_file

    def delete_then_lease(path):
        delete_file(path)
        if path == run.snapshots / step_name(1) / MANIFEST:
            Lease(run, "late").hold({"snapshots": [1]})

    monkeypatch.setattr(files, "delete_file", delete_then_lease)
    assert retain(run, "snapshots", 3) == [2]
    assert integrity.read_verified(run.snapshots / step_name(1), "snapshot")


def test_half_deleted_step_is_not_listed_and_is_deleted_later(run, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(files, "delete_tree", lambda folder: (folder / "a").unlink())
        retain(run, "snapshots", 4)
    assert (run.snapshots / step_name(1)).exists()
    assert commit.steps(run.snapshots) == [2, 3, 4, 5]
    retain(run, "snapshots", 4)
    assert not (run.snapshots / step_name(1)).exists()


def test_retention_keeps_the_unfinished_newest_step(run):
    (run.snapshots / step_name(6)).mkdir()
    retain(run, "snapshots", 1)
    assert (run.snapshots / step_name(6)).exists()


def following(run, after=None, wait=None, end=None, stop=None, poll_seconds=0.5):
    stop = stop or threading.Event()
    over = (lambda: ended(run)) if end is None else end
    polling = {"poll_seconds": poll_seconds, "stop": stop, "ended": over, "wait": wait}
    return follow(run.snapshots, after, **polling)


def test_follow_yields_only_the_newest_step_and_waits_between_polls(run):
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            publish(run, 6, 7)
        if len(waits) == 5:
            mark_end(run)

    assert list(following(run, wait=wait)) == [5, 7]
    assert waits == [0.5] * 5


def test_follow_starts_after_the_given_step(run):
    mark_end(run, reason="done")
    assert list(following(run, after=4)) == [5]
    assert list(following(run, after=5)) == []


def test_follow_ends_on_the_marker_without_any_step(tmp_path):
    run = RunDir(tmp_path)
    polls = []

    def end():
        polls.append(ended(run))
        return polls[-1]

    def wait(_):
        if len(polls) == 4:
            mark_end(run)

    assert list(following(run, wait=wait, end=end)) == []
    assert polls == [False] * 4 + [True]
    clear_end(run)
    assert not ended(run)


def test_step_published_just_before_the_end_is_yielded(run):
    def end():
        publish(run, 9)
        return True

    assert list(following(run, after=5, end=end)) == [9]


def test_follow_ends_at_once_on_the_stop_signal(run):
    stop = threading.Event()
    steps = following(run, after=5, stop=stop, poll_seconds=600.0)
    waiting = threading.Thread(target=lambda: list(steps), daemon=True)
    waiting.start()
    time.sleep(0.05)
    stop.set()
    waiting.join(20)
    assert not waiting.is_alive()


def test_heartbeat_is_read_back_unless_it_is_incomplete(tmp_path):
    run = RunDir(tmp_path)
    assert last_beat(run, "trainer") is None
    beat(run, "trainer", clock=Clock(), step=7, state="training")
    seen = last_beat(run, "trainer")
    assert (seen["time"], seen["step"], seen["state"]) == (1000.0, 7, "training")
    path = run.heartbeats / "trainer.json"
    path.write_bytes(path.read_bytes()[:20])
    assert last_beat(run, "trainer") is None


def test_reader_that_follows_a_writing_process_reads_only_complete_steps(tmp_path):
    run, versions = RunDir(tmp_path), 20
    writer = subprocess.Popen([sys.executable, str(WRITER), str(tmp_path), "1", "20", "2"])
    lease = Lease(run, "reader")
    stop = threading.Event()
    over = lambda: writer.poll() is not None  # noqa: E731
    read, withdrawn, using = [], 0, []
    for step in follow(run.snapshots, None, poll_seconds=0.002, stop=stop, ended=over):
        lease.hold({"snapshots": [*using, step]})
        try:
            snapshot = read_snapshot(run.snapshots / step_name(step))
        except commit.NotPublishedError:  # two newer ones came before the lease
            withdrawn += 1
            continue
        assert snapshot.config_json == f'{{"step": {step}}}'
        assert all(
            (leaf == step).all() for leaf in (snapshot.params["a"]["w"], snapshot.params["b"])
        )
        assert all(integrity.verify(run.snapshots / step_name(old)) == [] for old in using)
        using = [step]
        lease.hold({"snapshots": using})
        read.append(step)
    assert writer.wait() == 0
    assert read == sorted(read) and read[-1] == versions and len(read) >= 5
    assert withdrawn <= 2
    assert set(commit.steps(run.snapshots)) <= {*using, *range(versions - 3, versions + 1)}


def test_paths_may_be_strings(tmp_path):
    assert RunDir(str(tmp_path)).snapshots == epath.Path(tmp_path) / "snapshots"
    assert np.all(
        [files.is_local(epath.Path(tmp_path)), not files.is_local(epath.Path("gs://b/r"))]
    )


def test_threads_may_hold_and_renew_one_lease_at_the_same_time(tmp_path):
    run = RunDir(tmp_path)
    lease = Lease(run, "trainer")

    def hold(step):
        for _ in range(50):
            lease.hold({"snapshots": [step]})
            lease.renew()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(hold, step) for step in range(4)]:
            done.result()
    assert leased(run, "snapshots") in ({0}, {1}, {2}, {3})
