"""Runs on an object store: s3://, served by moto on the loopback interface."""

import json
import struct
import sys
import threading
import time
from functools import partial

import jax
import numpy as np
import pytest
from support.builder_thread import building
from support.finished_run import write_finished_run
from support.object_store import BUCKET, serve_object_store
from support.tiny_corpus import tiny_config
from tensorboardX.proto.event_pb2 import Event

from realm_jax import config as config_lib
from realm_jax.artifacts import audit_log
from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.params import load_parameters
from realm_jax.artifacts.published_index import open_index
from realm_jax.artifacts.verify import check
from realm_jax.cli import jobs
from realm_jax.cli.main import main
from realm_jax.errors import InputError, RealmError, Stopped
from realm_jax.index_builder import run as index_builder
from realm_jax.monitoring import tensorboard
from realm_jax.monitoring.status import read_status
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage import commit, files, heartbeat, locks
from realm_jax.storage.layout import PARAMETERS, RunDir, step_name
from realm_jax.storage.leases import Lease, leased
from realm_jax.storage.locks import Lock
from realm_jax.storage.logs import Log, last_record, log_bytes, read_log
from realm_jax.storage.storage_clock import storage_time
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.train import train_tagger
from realm_jax.trainer import run as trainer

PATIENCE = 600.0


@pytest.fixture(scope="module")
def traffic():
    """Serves an empty bucket; yields its record of requests."""
    with serve_object_store() as traffic:
        yield traffic


@pytest.fixture
def store(traffic):
    """The address of the bucket."""
    return BUCKET


def test_second_lock_is_acquired_only_after_the_first_expired(store):
    folder, later = RunDir(f"{store}/locks").root, [0.0]
    clock = lambda: storage_time(folder / "clock") + later[0]  # noqa: E731
    first, second = (Lock(folder, "it", seconds=30.0, clock=clock) for _ in range(2))
    assert first.acquire() and not second.acquire()
    later[0] = 20.0
    assert not second.acquire()
    later[0] = 40.0
    assert second.acquire()
    with pytest.raises(RealmError, match="another process has taken over"):
        first.assert_held()


def test_age_of_a_lock_and_of_a_lease_follows_from_the_timestamps_of_the_store(store):
    run = RunDir(f"{store}/ages")
    first, second = (Lock(run.leases, "it", seconds=3.0) for _ in range(2))
    lease = Lease(run, "reader", seconds=3.0)
    lease.hold({"snapshots": [2]})
    assert first.acquire() and not second.acquire()
    assert leased(run, "snapshots") == {2}
    assert abs(storage_time(run.leases / "clock") - time.time()) < 60.0
    until = time.monotonic() + 60.0
    while not second.acquire() and time.monotonic() < until:
        time.sleep(0.5)
    assert second.acquire() and leased(run, "snapshots") == set()


def take_over(run, job):
    """Acquires the lock of a job, as after two minutes without a renewal."""
    later = Lock(run.leases, job, clock=lambda: time.time() + 120.0)
    while not later.acquire():
        time.sleep(0.05)


@pytest.mark.parametrize("job", ["trainer", "index_builder"])
def test_job_that_lost_its_lock_ends_without_a_checkpoint(store, tiny, monkeypatch, job):
    run, stop, over = RunDir(f"{store}/lost_{job}"), threading.Event(), threading.Event()
    config = tiny_config(tiny.folder, model__layers=1, stages__ict__steps=10**6)
    monkeypatch.setattr(locks, "Lock", partial(Lock, seconds=1.0))

    def work():
        if job == "trainer":
            trainer.run(str(run.workdir), config, stop)
        else:
            index_builder.run(str(run.workdir), 0.05, stop)

    def at_work():
        beat = heartbeat.last_beat(run, job)
        return beat is not None and (beat.get("stage") == "ict" or job == "index_builder")

    def other():
        until = time.monotonic() + PATIENCE
        while not at_work() and time.monotonic() < until:
            time.sleep(0.05)
        take_over(run, job)
        over.wait(PATIENCE)
        stop.set()  # ends a job that did not notice the loss

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(RealmError, match="another process has taken over"):
        work()
    over.set()
    thread.join(PATIENCE)
    assert commit.latest(run.checkpoints("ict")) is None
    assert Lock(run.leases, job).holder() is not None


def test_file_is_created_only_once(store):
    path = RunDir(f"{store}/create").root / "it"
    assert files.create(path, b"first") and not files.create(path, b"second")
    assert files.read_bytes(path) == b"first"


def test_folder_that_another_process_deletes_at_the_same_time_is_deleted(store, monkeypatch):
    folder = RunDir(f"{store}/deleted").root / "folder"
    files.write_bytes(folder / "it", b"content")
    rmtree = type(folder).rmtree

    def rmtree_too_late(self):
        there, inside = files.on_store(self)
        type(there)(skip_instance_cache=True).rm(inside, recursive=True)  # the other process
        rmtree(self)

    monkeypatch.setattr(type(folder), "rmtree", rmtree_too_late)
    files.delete_tree(folder)
    assert not folder.exists()


def test_log_is_written_in_parts_and_read_as_one(store, monkeypatch):
    monkeypatch.setattr("realm_jax.storage.logs.PART", 40)
    path = RunDir(f"{store}/logs").logs / "it.jsonl"
    for writer in range(2):
        log = Log(path)
        for number in range(5):
            log.append({"writer": writer, "number": number})
    assert [(r["writer"], r["number"]) for r in read_log(path)] == [
        (writer, number) for writer in range(2) for number in range(5)
    ]
    assert len(files.list_names(path.with_name("it.jsonl.parts"))) > 2


def test_cost_of_a_record_does_not_depend_on_the_length_of_the_log(traffic, store, monkeypatch):
    monkeypatch.setattr("realm_jax.storage.logs.PART", 400)
    path = RunDir(f"{store}/cost").logs / "it.jsonl"
    log = Log(path)
    for number in range(200):
        traffic.clear()
        log.append({"number": number})
        if number:
            assert not traffic.of("GET") and len(traffic.of("PUT")) == 1
            assert traffic.bytes_written() < 1000
    assert [record["number"] for record in read_log(path)] == [*range(200)]
    traffic.clear()
    assert last_record(path) == {"number": 199}
    assert traffic.bytes_read() < 1000


def test_two_writers_of_a_log_do_not_overwrite_each_other(store, monkeypatch):
    """One has been overtaken and does not know it yet."""
    monkeypatch.setattr("realm_jax.storage.logs.PART", 40)
    path = RunDir(f"{store}/two").logs / "it.jsonl"
    logs = [Log(path), Log(path)]
    for number in range(40):
        logs[number % 2].append({"number": number})
    assert sorted(record["number"] for record in read_log(path)) == [*range(40)]


def test_swaps_and_indexes_are_logged_without_reading_the_log(traffic, store):
    run, vectors = RunDir(f"{store}/audit"), np.eye(4, dtype=np.float32)
    index = (ExactSearcher(vectors), np.arange(4), vectors)
    write = lambda folder: files.write_bytes(folder / "it", b"index")  # noqa: E731
    for step in range(12):
        commit.publish(run.published_index, step, write, {"kind": "published_index"})
        traffic.clear()
        for _ in range(2):  # the second adds nothing
            audit_log.log_index(run, step, *index)
        assert len(traffic.of("GET", "indexes.jsonl.parts/")) <= 2
    assert [record["index_step"] for record in read_log(run.indexes)] == [*range(12)]
    assert len(files.list_names(run.indexes.with_name("indexes.jsonl.parts"))) == 1


def test_event_files_of_the_store_do_not_grow_with_the_run(traffic, store, monkeypatch):
    monkeypatch.setattr(tensorboard, "_UPLOAD_EVERY", 0.0)
    monkeypatch.setattr(tensorboard, "_FILE_BYTES", 500)
    run = RunDir(f"{store}/events")
    writer = tensorboard.TensorBoard(run, "realm")
    writer.set_step(0)
    for step in range(200):
        traffic.clear()
        writer.write({"stage": "realm", "step": step, "time": 1.0, "loss": float(step)})
        assert traffic.bytes_written() < 3000
    writer.close()
    folder = run.logs / "tensorboard" / "realm"
    found = []
    for name in files.list_names(folder):
        events = [Event.FromString(data) for data in records(files.read_bytes(folder / name))]
        assert events[0].file_version == "brain.Event:2"
        found += [event.step for event in events if event.summary.value]
    assert found == [*range(200)]


def records(content):
    """The records of an event file."""
    while content:
        (size,) = struct.unpack("Q", content[:8])
        yield content[12 : 12 + size]
        content = content[16 + size :]


def test_status_of_a_run_on_the_store_is_reported(store, capsys):
    run = RunDir(f"{store}/middle")
    config = tiny_config("corpus", stages__realm__steps=40)
    files.write_bytes(run.config, config_lib.to_json(config).encode())
    heartbeat.beat(run, "trainer", stage="realm", step=12)
    heartbeat.beat(run, "index_builder", state="embedding", done=20, total=80, eta_s=6.5)
    for step, index_step in ((0, 0), (8, 4), (14, 10)):
        Log(run.swaps).append({"step": step, "index_step": index_step})
    assert main(["status", f"--workdir={run.workdir}", "--json"]) == 0
    status = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (status["stage"], status["step"], status["steps"]) == ("realm", 12, 40)
    assert (status["index_step"], status["staleness_steps"]) == (4, 8)
    assert (status["builder"]["done"], status["builder"]["total"]) == (20, 80)


def test_log_of_the_builder_process_is_uploaded_when_it_ends(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDir(f"{store}/failed")
    program = "import sys; print('failed'); sys.exit(3)"
    monkeypatch.setattr(jobs, "builder_command", lambda *_: [sys.executable, "-c", program])

    def waits(workdir, config, stop, background):
        with background():
            stop.wait(PATIENCE)

    monkeypatch.setattr(trainer, "run", waits)
    for attempt in (1, 2):
        with pytest.raises(
            RealmError, match=r"s3://bucket/failed/logs/\S+log[\s\S]*code 3: .*failed"
        ):
            jobs.run_both(run.workdir, tiny_config(), threading.Event())
        assert log_bytes(run.logs / "index_builder.log") == b"failed\n" * attempt
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_predictions_are_written_to_a_run_on_the_store(store, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = tiny_config(tiny.folder, model__layers=1, stages__qa__steps=4)
    run = write_finished_run(f"{store}/finished", tiny, config)
    (tmp_path / "questions.jsonl").write_text('{"question": "what is a?", "answers": ["a"]}\n')
    assert main(["eval", f"--workdir={run.workdir}", "--questions=questions.jsonl"]) == 0
    assert "what is a?" in capsys.readouterr().out
    assert b"what is a?" in files.read_bytes(run.root / "predictions.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


@pytest.mark.slow
def test_tagger_on_the_store_is_trained_and_opened(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tagged = tmp_path / "train.txt"
    tagged.write_text("Oslo NN B-LOC\nrose NN O\n\nBo NN B-PER\nsang NN O\n\n" * 10)
    steps = {"model__layers": 1, "stages__tagger__row_length": 24, "stages__tagger__steps": 1}
    config = tiny_config(stages__tagger__train_file=str(tagged), **steps)
    for _ in range(2):  # the second uses the vocabulary that the first has trained
        assert train_tagger(f"{store}/tagger", config, threading.Event()) == 1
    Tagger.open(f"{store}/tagger")
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]


def both(workdir, config, stop):
    """Runs the trainer in this thread, the index builder in another."""
    with building(workdir, 0.05):
        trainer.run(workdir, config, stop)


class StopAt(threading.Event):
    """Set once the trainer's heartbeat is at a step."""

    def __init__(self, run, step):
        super().__init__()
        self._run, self._step = run, step

    def is_set(self):
        beat = heartbeat.last_beat(self._run, "trainer") or {}
        if beat.get("stage") == "realm" and beat["step"] >= self._step:
            self.set()
        return super().is_set()


@pytest.mark.slow
def test_resumed_run_on_the_store_equals_a_run_on_a_disk(store, tiny, tmp_path):
    steps = {"model__layers": 1, "stages__ict__steps": 2, "stages__realm__steps": 6}
    config = tiny_config(tiny.folder, checkpoint__every=3, **steps)
    run = RunDir(f"{store}/run")
    with pytest.raises(Stopped):
        both(str(run.workdir), config, StopAt(run, 4))
    both(str(run.workdir), config, threading.Event())
    both(str(tmp_path), config, threading.Event())
    assert read_export(run).step == 6
    assert read_status(run)["stage"] == "done"
    assert check(run.root)["ok"]
    for published in (run.published_index, RunDir(tmp_path).published_index):
        # The index of step 0 stays if the builder deletes while the trainer still holds its lease.
        assert commit.steps(published)[-config.refresh.keep :] == [2, 4, 6]
    index = open_index(run.published_index / step_name(6))
    hits, _ = index.searcher.search(np.asarray(index.vectors[:3], np.float32), 1)
    assert hits.shape == (3, 1)
    assert [r["index_step"] for r in read_log(run.swaps)] == [0, 2, 4]
    there, here = (
        load_parameters(place.checkpoints("realm") / step_name(6) / PARAMETERS)
        for place in (run, RunDir(tmp_path))
    )
    jax.tree.map(np.testing.assert_array_equal, there, here)


def test_missing_bucket_is_refused(store, tiny):
    with pytest.raises(InputError, match="create the bucket first"):
        trainer.run("s3://no-such-bucket/run", tiny_config(tiny.folder), threading.Event())


def test_bucket_without_permission_is_refused_with_the_permissions_to_grant(store, tiny):
    refusing = pytest.importorskip("moto.core").set_initial_no_auth_action_count(0)

    @refusing
    def start():
        trainer.run(f"{store}/forbidden", tiny_config(tiny.folder), threading.Event())

    with pytest.raises(InputError, match="no permission to write to the bucket") as error:
        start()
    assert "s3:PutObject" in str(error.value)
