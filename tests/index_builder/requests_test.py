"""Requests of a refresh to an object store, which is served on the loopback interface."""

import threading
import time
import urllib.parse

import jax
import pytest
from support.object_store import BUCKET, serve_object_store
from support.probes import publish_with_probes
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.published_index import open_index
from realm_jax.index_builder import run as index_builder
from realm_jax.index_builder.worker import Worker
from realm_jax.models.modules import Modules
from realm_jax.storage import follow
from realm_jax.storage.layout import RunDir, step_name

pytestmark = pytest.mark.slow  # starts real processes or a whole refresh

SHARDS = 40
POLL = 4.0


@pytest.fixture
def requests():
    """Requests since the bucket was made."""
    with serve_object_store() as traffic:
        yield traffic


@pytest.mark.parametrize("count", [1, 2])
def test_a_refresh_writes_and_reads_each_shard_once(requests, tiny, count):
    config = tiny_config(tiny.folder, model__layers=1, builder__shard=1, builder__poll_seconds=POLL)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    parameters = jax.device_get(jax.jit(modules.init)(jax.random.key(0)))
    run = RunDir(f"{BUCKET}/of{count}")
    publish_with_probes(run, 2, config, parameters)
    follow.mark_end(run)
    requests.clear()
    workers = [Worker(number, count) for number in range(count)]
    threads = [
        threading.Thread(
            target=index_builder.run, args=(str(run.workdir), POLL, threading.Event(), worker)
        )
        for worker in workers
    ]
    began = time.monotonic()
    [thread.start() for thread in threads]
    [thread.join(600.0) for thread in threads]
    polls = count * (1 + (time.monotonic() - began) / POLL)
    assert len(open_index(run.published_index / step_name(2)).rows) == SHARDS
    kinds = {"PUT": 0, "GET": 0, "list": 0, "HEAD": 0}
    for request in requests.requests:
        path = urllib.parse.unquote(request.path)
        if "/builder/" in path:
            kind = "list" if "list-type" in path else request.method
            kinds[kind] = kinds.get(kind, 0) + (kind == "list" or "shard_" in path)
    assert kinds["PUT"] == SHARDS
    assert kinds["GET"] == (SHARDS // 2 if count > 1 else 0)
    assert kinds["HEAD"] == 0
    assert kinds["list"] < 8 + 2 * polls  # a poll lists builder/ and builder/STEP/
