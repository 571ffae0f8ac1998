"""Progress of a refresh: what counts as done, and the estimate of the time left."""

import threading

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.errors import Stopped
from realm_jax.index_builder import embed_corpus
from realm_jax.index_builder.refresh import _progress
from realm_jax.index_builder.shards import ShardFiles
from realm_jax.index_builder.worker import ONLY_WORKER, Worker
from realm_jax.storage import heartbeat
from realm_jax.storage.layout import RunDir

SIZE, SHARD, WIDTH = 40, 4, 8
HASH = "c0ffee"


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


def test_the_time_left_counts_only_what_this_process_has_done(run):
    """A resumed builder has 900 of 1,000 passages; it embeds ten in ten seconds."""
    times = iter([0.0, 10.0, 15.0])
    progress = _progress(run, 0, 1000, lambda: next(times))
    left = []
    for done in (900, 910, 915):
        progress(done)
        left.append(heartbeat.last_beat(run, "index_builder").get("eta_s"))
    assert left == [None, 90.0, 85.0]


def embed(folder, progress, worker=ONLY_WORKER, stop=None):
    config = tiny_config(builder__shard=SHARD, model__embedding=WIDTH, builder__poll_seconds=0.01)
    vectors = lambda ids: np.zeros((len(ids), WIDTH), np.float32)  # noqa: E731
    given = (config, np.arange(SIZE), vectors, folder, HASH, stop or threading.Event())
    return embed_corpus.embed_corpus(*given, progress, worker)


def test_stored_shards_are_done_from_the_first_report_on(run):
    stop, reports = threading.Event(), []

    def until_36(done):
        reports.append(done)
        if done == 36:
            stop.set()

    with pytest.raises(Stopped):
        embed(run.shards(0), until_36, stop=stop)
    assert reports == list(range(4, 40, 4))
    reports.clear()
    embed(run.shards(0), reports.append)
    assert reports == [40]


def test_worker_0_counts_the_shards_of_the_others_while_it_embeds(run, monkeypatch):
    monkeypatch.setattr(embed_corpus, "REPORT_SECONDS", -1.0)
    folder, reports = run.shards(0), []
    other = ShardFiles(folder, WIDTH, HASH)
    starts = iter(Worker(1, 2).starts(SIZE, SHARD))

    def progress(done):
        reports.append(done)
        for start in [next(starts, None)]:
            if start is not None:
                other.write(start, np.zeros((SHARD, WIDTH), np.float32))

    embed(folder, progress, Worker(0, 2))
    assert reports == [4, 12, 20, 28, 36]
