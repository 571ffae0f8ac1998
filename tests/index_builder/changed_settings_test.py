"""The run is started again with other search settings while several workers build an index."""

import time

import pytest
from support.index_of_segments import config_of, opened
from support.workers import POLL, Builder, wait_until

from realm_jax import config as config_lib
from realm_jax.index_builder import embed_corpus
from realm_jax.index_builder.built_segments import settings_of
from realm_jax.index_builder.work_order import WorkOrder, write_order
from realm_jax.storage import commit, files, follow

SECONDS = 240.0  # the longest wait for an index


def start_with(run, config):
    """Writes the config of the run, as its trainer does when it starts."""
    run.config.write_text(config_lib.to_json(config))


@pytest.mark.parametrize("before", [12, 40])
def test_worker_0_begins_again_and_all_workers_use_the_new_settings(
    run, publish, tiny, monkeypatch, before
):
    """Worker 0 waits for segments of another worker, or for shards of an index of one segment."""
    monkeypatch.setattr(embed_corpus, "REPORT_SECONDS", 5 * POLL)
    old = config_of(tiny, search__segment_passages=before)
    publish(run, 2, old)
    start_with(run, old)
    follow.mark_end(run)
    first = Builder(run, 0, 2)
    last = "segment_00002" if before == 12 else "shard_0000000032.f32"
    wait_until(lambda: last in files.list_names(run.shards(2)))
    new = config_of(tiny, search__segment_passages=12, builder__recall_floor=0.5)
    start_with(run, new)
    second = Builder(run, 1, 2)
    for worker in (first, second):
        worker.join(SECONDS)
        worker.given[2].set()  # the stop signal: it would wait without end
    assert (first.result(), second.result()) == (1, 0)
    manifest = opened(run).manifest
    assert manifest["segment_settings"] == settings_of(new, manifest["corpus_hash"])
    assert len(manifest["segments"]) == 4 and files.list_names(run.builder) == []


def test_a_worker_with_other_settings_than_the_order_waits(run, publish, tiny, embedded, caplog):
    old, new = config_of(tiny), config_of(tiny, builder__recall_floor=0.5)
    publish(run, 2, old)
    start_with(run, new)
    corpus = tiny.store.corpus_hash
    write_order(run, WorkOrder(2, 2, 4, corpus, settings_of(old, corpus)))
    worker = Builder(run, 1, 2)
    wait_until(lambda: "index_builder-1 waits until worker 0 begins again" in caplog.text)
    assert "--worker=0/2" in caplog.text
    time.sleep(10 * POLL)
    assert embedded == [] and files.list_names(run.shards(2)) == ["WORK.json"]
    start_with(run, old)  # changed back before worker 0 noticed
    wait_until(lambda: commit.is_published(run.shards(2) / "segment_00003"))
    worker.given[2].set()
    assert worker.result() == 0 and caplog.text.count("waits until worker 0") == 1
