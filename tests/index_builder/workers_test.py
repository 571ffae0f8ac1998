"""Several builders share the shards of a run; worker 0 publishes; a killed one is started again."""

import shutil
import threading
import time

import numpy as np
import pytest
from support.tiny_corpus import tiny_config
from support.workers import POLL, Builder, wait_until

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import open_index
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.corpus.generations import write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import MismatchError, RealmError, UsageError
from realm_jax.index_builder import assist, embed_corpus
from realm_jax.index_builder import refresh as refreshing
from realm_jax.index_builder import run as index_builder
from realm_jax.index_builder.work_order import WorkOrder, newest_order, write_order
from realm_jax.index_builder.worker import parse_worker
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage import commit, files, follow, heartbeat, sealed
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.locks import Lock, StopOrLost


@pytest.fixture(scope="module")
def config(tiny):
    """The corpus has five shards."""
    return tiny_config(tiny.folder, model__layers=1, builder__shard=8, builder__poll_seconds=POLL)


@pytest.fixture
def run(run, publish, config):
    """A run with one snapshot."""
    publish(run, 2, config)
    return run


@pytest.fixture
def embedded(monkeypatch):
    """First passage ids of the shards that were embedded, in order."""
    embedded, embed_passages = [], Encoder.embed_passages

    def recorded(self, params, store, ids):
        embedded.append(int(ids[0]))
        return embed_passages(self, params, store, ids)

    monkeypatch.setattr(Encoder, "embed_passages", recorded)
    return embedded


@pytest.mark.parametrize("text", ["a", "2/2", "-1/2", "0/0", "1", "1/2/3", "builder-0", "", "٠/١"])
def test_a_worker_that_is_not_i_of_n_is_refused(text):
    with pytest.raises(UsageError, match=r"i/n[\s\S]*0 <= i < n[\s\S]*--worker=0/n"):
        parse_worker(text)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_shard_has_one_worker(count):
    workers = [parse_worker(f"{number}/{count}") for number in range(count)]
    starts = [start for worker in workers for start in worker.starts(41, 8)]
    assert sorted(starts) == [0, 8, 16, 24, 32, 40]
    assert len({worker.name for worker in workers}) == count


def test_workers_embed_each_shard_once_and_worker_0_publishes(
    run, publish, embedded, tmp_path, monkeypatch, config
):
    follow.mark_end(run)
    workers = [Builder(run, number, 3) for number in range(3)]
    assert [worker.result() for worker in workers] == [1, 0, 0]
    assert sorted(embedded) == [0, 8, 16, 24, 32]
    assert files.list_names(run.builder) == []
    assert len(list(run.indexes.read_text().splitlines())) == 1
    one = RunDir(tmp_path / "one")
    publish(one, 2, config)
    follow.mark_end(one)
    assert Builder(one, 0, 1).result() == 1
    found, expected = (open_index(each.published_index / step_name(2)) for each in (run, one))
    np.testing.assert_array_equal(found.vectors, expected.vectors)
    for worker in ("index_builder", "index_builder-1", "index_builder-2"):
        assert sealed.read(run.heartbeats / f"{worker}.json")["state"] == "stopped"


def test_workers_build_each_snapshot_until_the_run_has_ended(run, publish, embedded, config):
    workers = [Builder(run, number, 2) for number in range(2)]
    wait_until(lambda: commit.latest(run.published_index) == 2)
    publish(run, 4, config)
    wait_until(lambda: commit.latest(run.published_index) == 4)
    assert all(worker.is_alive() for worker in workers)
    publish(run, 6, config)
    follow.mark_end(run)
    assert [worker.result() for worker in workers] == [3, 0]
    assert sorted(embedded) == sorted(3 * [0, 8, 16, 24, 32])


@pytest.mark.parametrize("count", [1, 2])
def test_an_earlier_end_does_not_stop_builders_of_a_run_that_is_continued(
    run, publish, config, count
):
    follow.mark_end(run, step=2)
    assert Builder(run, 0, 1).result() == 1
    workers = [Builder(run, number, count, last_step=4) for number in range(count)]
    time.sleep(10 * POLL)
    assert all(worker.is_alive() for worker in workers)
    follow.clear_end(run)  # as the trainer does when it has started
    publish(run, 4, config)
    follow.mark_end(run, step=4)
    assert [worker.result() for worker in workers] == [1, 0][:count]


def test_a_builder_that_starts_after_the_last_step_ends(run):
    follow.mark_end(run, step=2)
    assert Builder(run, 0, 1, last_step=2).result() == 1
    run.end_marker.write_text("{}")  # damaged
    assert Builder(run, 0, 1, last_step=4).result() == 0


def test_worker_0_waits_and_names_the_missing_worker(run, embedded, monkeypatch, caplog):
    monkeypatch.setattr(embed_corpus, "REPORT_SECONDS", 0.05)
    caplog.set_level("INFO")
    follow.mark_end(run)
    first = Builder(run, 0, 2)
    warning = "waiting for 2 shards of workers 1/2: none has arrived for"
    wait_until(lambda: warning in caplog.text)
    beat = heartbeat.last_beat(run, "index_builder")
    assert (beat["state"], beat["done"], beat["total"]) == ("embedding", 24, 40)
    assert embedded == [0, 16, 32] and commit.latest(run.published_index) is None
    second = Builder(run, 1, 2)
    assert (first.result(), second.result()) == (1, 0)
    assert embedded == [0, 16, 32, 8, 24]


def test_finished_shards_are_reused_and_a_damaged_one_is_embedded_again(run, embedded):
    first, second = Builder(run, 0, 2), Builder(run, 1, 2)
    wait_until(lambda: commit.latest(run.published_index) == 2)
    stop_both(first, second)
    expected = np.array(open_index(run.published_index / step_name(2)).vectors)
    files.delete_tree(run.published_index)
    embedded.clear()
    second = Builder(run, 1, 2)  # continues when worker 0 has written the work order again
    order = WorkOrder(2, 2, 8, read_hash(run))
    write_order(run, order)
    folder = run.shards(2)
    wait_until(lambda: {"shard_0000000008.f32", "shard_0000000024.f32"} <= names(folder))
    assert embedded == [8, 24]
    damaged = bytearray((folder / "shard_0000000024.f32").read_bytes())
    damaged[3] ^= 1
    (folder / "shard_0000000024.f32").write_bytes(damaged)
    follow.mark_end(run)
    first = Builder(run, 0, 2)
    assert (first.result(), second.result()) == (1, 0)
    assert sorted(embedded) == [0, 8, 16, 24, 24, 32]
    np.testing.assert_array_equal(open_index(run.published_index / step_name(2)).vectors, expected)


def stop_both(*workers):
    for worker in workers:
        worker.given[2].set()
    for worker in workers:
        worker.result()


def names(folder):
    return set(files.list_names(folder))


def read_hash(run):
    snapshot = read_snapshot(run.snapshots / step_name(2))
    config = config_lib.from_json(snapshot.config_json, "snapshot")
    return PassageStore.open(config.corpus.knowledge).corpus_hash


def test_a_work_order_for_another_number_of_workers_is_refused(run, monkeypatch):
    monkeypatch.setattr(assist, "ORDER_SECONDS", 0.1)
    write_order(run, WorkOrder(2, 3, 8, read_hash(run)))
    expected = r"another number of workers[\s\S]*--worker=1/2[\s\S]*3 workers[\s\S]*--worker=2/3"
    with pytest.raises(MismatchError, match=expected):
        Builder(run, 1, 2).result()


def test_an_order_of_an_earlier_start_is_replaced_in_time(run):
    write_order(run, WorkOrder(2, 3, 8, read_hash(run)))
    follow.mark_end(run)
    second = Builder(run, 1, 2)
    time.sleep(5 * POLL)
    assert (Builder(run, 0, 2).result(), second.result()) == (1, 0)


def test_a_worker_with_another_corpus_is_refused(run):
    write_order(run, WorkOrder(2, 2, 8, "another"))
    with pytest.raises(MismatchError, match=r"another corpus than worker 0[\s\S]*another"):
        Builder(run, 1, 2).result()


def test_a_worker_leaves_an_older_order_for_the_newest_one(
    run, publish, embedded, monkeypatch, config
):
    monkeypatch.setattr(assist, "_CHECK_SECONDS", 0.0)
    publish(run, 4, config)
    write_order(run, WorkOrder(2, 2, 8, read_hash(run)))
    embed = Encoder.embed_passages

    def newer(self, *given):
        if len(embedded) == 0:
            write_order(run, WorkOrder(4, 2, 8, read_hash(run)))
        return embed(self, *given)

    monkeypatch.setattr(Encoder, "embed_passages", newer)
    worker = Builder(run, 1, 2)
    wait_until(lambda: "shard_0000000024.f32" in names(run.shards(4)))
    stop_both(worker)
    assert names(run.shards(2)) == {"WORK.json", "shard_0000000008.f32"}
    assert newest_order(run).step == 4


def test_a_worker_embeds_the_generation_of_its_order(run, publish, embedded, tiny, tmp_path):
    corpus = shutil.copytree(tiny.folder, tmp_path / "corpus")
    publish(run, 4, tiny_config(corpus, model__layers=1, builder__shard=8))
    first = PassageStore.open(corpus)
    write_passages_generation(corpus, [], [3])
    write_order(run, WorkOrder(4, 2, 8, first.corpus_hash))
    worker = Builder(run, 1, 2)
    wait_until(lambda: "shard_0000000024.f32" in names(run.shards(4)))
    stop_both(worker)
    assert embedded == [8, 24]  # without passage 3, the shards would begin at 9 and 25


def test_an_order_of_a_later_step_is_replaced(run):
    """Worker 0 was killed at step 4, and the snapshot of step 4 was deleted as damaged."""
    write_order(run, WorkOrder(4, 2, 8, read_hash(run)))
    files.write_bytes(run.shards(4) / "shard_0000000000.f32", b"of step 4")
    write_order(run, WorkOrder(2, 2, 8, read_hash(run)))
    assert newest_order(run).step == 2 and names(run.shards(4)) == {"shard_0000000000.f32"}
    follow.mark_end(run)
    second, first = Builder(run, 1, 2), Builder(run, 0, 2)
    assert (first.result(), second.result()) == (1, 0)


def test_an_order_whose_snapshot_was_deleted_is_not_followed(run, publish):
    write_order(run, WorkOrder(1, 2, 8, read_hash(run)))
    follow.mark_end(run)
    second, first = Builder(run, 1, 2), Builder(run, 0, 2)
    assert (first.result(), second.result()) == (1, 0)


def test_shards_of_abandoned_older_steps_are_deleted(run, publish, monkeypatch, config):
    """Stopped after its first shard, a builder goes on at the newest snapshot."""
    embed_passages = Encoder.embed_passages
    for step in (2, 4):
        stop = threading.Event()

        def one(self, params, store, ids, stop=stop):
            stop.set()
            return embed_passages(self, params, store, ids)

        monkeypatch.setattr(Encoder, "embed_passages", one)
        publish(run, step, config)
        assert index_builder.run(str(run.root), POLL, stop) == 0
    assert files.list_names(run.builder) == [step_name(2), step_name(4)]
    publish(run, 6, config)
    follow.mark_end(run)
    assert index_builder.run(str(run.root), POLL, threading.Event()) == 1
    assert files.list_names(run.builder) == []
    files.write_bytes(run.shards(6) / "shard_0000000000.f32", b"of a builder killed just then")
    assert index_builder.run(str(run.root), POLL, threading.Event()) == 0
    assert files.list_names(run.builder) == []


def test_shards_of_a_newer_step_than_the_published_one_are_kept(run):
    newer = run.shards(4) / "shard_0000000000.f32"
    files.write_bytes(newer, b"of another builder")
    written = read_snapshot(run.snapshots / step_name(2))
    assert index_builder.refresh(run, written, threading.Event())
    assert newer.exists() and files.list_names(run.builder) == [step_name(4)]


def test_a_pointer_that_its_publisher_did_not_move_is_moved_by_another_builder(run):
    snapshot = read_snapshot(run.snapshots / step_name(2))
    assert index_builder.refresh(run, snapshot, threading.Event())
    commit.write_pointer(run.published_index, 0)
    files.delete_tree(run.shards(2))
    assert not index_builder.refresh(run, snapshot, threading.Event())
    assert sealed.read(run.published_index / "LATEST.json") == {"step": 2}


@pytest.mark.parametrize("moment", ["build_index", "publish_index", "audit_log.log_index"])
def test_a_builder_that_was_overtaken_publishes_and_deletes_nothing(run, monkeypatch, moment):
    """Another process takes the lock of the job just before a part of the refresh."""
    snapshot, lock = read_snapshot(run.snapshots / step_name(2)), Lock(run.leases, "index_builder")
    assert lock.acquire()
    holder, _, name = moment.rpartition(".")
    place = getattr(refreshing, holder) if holder else refreshing
    then = getattr(place, name)

    def held_up(*given):
        later = Lock(run.leases, "index_builder", clock=lambda: time.time() + 120.0)
        assert later.acquire()
        return then(*given)

    monkeypatch.setattr(place, name, held_up)
    with pytest.raises(RealmError, match="another process has taken over"):
        refreshing.refresh(run, snapshot, StopOrLost(threading.Event(), lock))
    assert run.shards(2).exists()
    if moment != "audit_log.log_index":
        assert commit.steps(run.published_index) == []
