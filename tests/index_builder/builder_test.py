"""The index builder: shapes from the snapshot, resumable shards, recall floor, end of the run."""

import functools
import threading
import time

import jax
import numpy as np
import pytest
from support.probes import publish_with_probes
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import open_index
from realm_jax.data.rows import passage_rows
from realm_jax.errors import RealmError, Stopped
from realm_jax.index_builder.embed_corpus import embed_corpus
from realm_jax.index_builder.recall import Probes
from realm_jax.index_builder.run import refresh
from realm_jax.index_builder.run import run as run_builder
from realm_jax.index_builder.shards import VECTORS
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import local_mesh
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage import commit, follow, heartbeat
from realm_jax.storage.layout import RunDir, step_name


def embedder_parameters(config, vocabulary, seed=0):
    modules = Modules(config.model, vocabulary, ("embedder",))
    return jax.device_get(jax.jit(modules.init)(jax.random.key(seed)))


@pytest.fixture(scope="module")
def config(tiny):
    """Random params, large enough that vectors differ by more than rounding errors."""
    return tiny_config(tiny.folder, model__layers=1, model__init_stddev=0.3)


@pytest.fixture(scope="module")
def parameters(config, tiny):
    return embedder_parameters(config, tiny.store.vocabulary.size)


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


class CountingEncoder(Encoder):
    """Counts the passages that it embeds."""

    embedded = 0

    def embed_passages(self, params, store, ids):
        self.embedded += len(ids)
        return super().embed_passages(params, store, ids)


def test_vectors_do_not_depend_on_length_bucketing(config, parameters, tiny):
    numbers = np.array([5, 3, 39, 0, 0, 17, 8])
    encoder = Encoder(config, tiny.store.vocabulary.size)
    lengths = np.minimum(tiny.store.lengths(), config.lengths.passage)
    assert len(set(np.searchsorted(encoder._widths, lengths[numbers]))) > 1
    found = encoder.embed_passages(parameters["embedder"], tiny.store, numbers)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    alone = jax.jit(lambda given, rows: modules.bind(given).embedder.embed(*rows))
    for row, number in enumerate(numbers):
        rows = passage_rows(tiny.store, np.array([number]), config.lengths.passage)
        np.testing.assert_allclose(found[row], alone(parameters, rows)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("devices", [1, 2])
def test_all_batches_but_the_last_are_full(config, parameters, tiny, devices):
    lengths = np.minimum(tiny.store.lengths(), config.lengths.passage)[::-1]
    encoder = Encoder(config, tiny.store.vocabulary.size, local_mesh(jax.devices()[:devices]))
    *full, (last, widest) = encoder._batches(lengths)
    assert full
    for members, width in full:
        rows = config.builder.batch_pieces // width * devices
        assert len(members) == rows and width <= widest
        assert (lengths[members] <= width).all()
    together = np.concatenate([*(members for members, _ in full), last])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(lengths)))


def test_each_batch_width_is_traced_only_once(parameters, tiny):
    config = tiny_config(
        tiny.folder, model__layers=1, model__remat="full"
    )  # no other test uses this model, so nothing is traced yet
    ids, lengths = (
        np.arange(len(tiny.store)),
        np.minimum(tiny.store.lengths(), config.lengths.passage),
    )
    for _ in range(2):
        encoder = Encoder(config, tiny.store.vocabulary.size, local_mesh(jax.devices()[:1]))
        for some in (ids, ids[7:9]):
            encoder.embed_passages(parameters["embedder"], tiny.store, some)
        batches = [*encoder._batches(lengths), *encoder._batches(lengths[7:9])]
        assert encoder.program._jitted._cache_size() == len({width for _, width in batches}) > 1


def test_a_killed_builder_resumes_at_its_unfinished_shard(run, config, parameters, tiny):
    """40 passages in shards of 16: after a stop at the first shard, 24 remain to be embedded."""
    stop, folder = threading.Event(), run.shards(0)

    def embed(stop, progress):
        encoder = CountingEncoder(config, tiny.store.vocabulary.size)
        embed = functools.partial(encoder.embed_passages, parameters["embedder"], tiny.store)
        try:
            given = (config, tiny.store.live_ids(), embed, folder, tiny.store.corpus_hash)
            vectors = embed_corpus(*given, stop, progress)
        except Stopped:
            vectors = None
        return vectors, encoder.embedded

    assert embed(stop, lambda done: stop.set()) == (None, 16)
    vectors, asked = embed(threading.Event(), lambda done: None)
    assert asked == 24 and isinstance(vectors, np.memmap)  # memory-mapped
    names = [path.name for path in folder.iterdir()]
    assert all(name == VECTORS or name.startswith("shard_") for name in names)
    encoder = Encoder(config, tiny.store.vocabulary.size)
    ids = np.arange(len(tiny.store))
    expected = encoder.embed_passages(parameters["embedder"], tiny.store, ids)
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert embed(threading.Event(), lambda done: None)[1] == 0


@pytest.mark.parametrize(
    ("harm", "again"), [("cut", 16 + 8), ("altered", 16), ("unmarked", 16), ("mark torn", 16)]
)
def test_a_damaged_shard_is_embedded_again(run, config, parameters, tiny, harm, again):
    """Shards of 16, 16 and 8 passages; the second is damaged."""
    folder = run.shards(0)

    def asked():
        encoder = CountingEncoder(config, tiny.store.vocabulary.size)
        embed = functools.partial(encoder.embed_passages, parameters["embedder"], tiny.store)
        ignored = lambda done: None  # noqa: E731
        given = (config, tiny.store.live_ids(), embed, folder, tiny.store.corpus_hash)
        embed_corpus(*given, threading.Event(), ignored)
        return encoder.embedded

    assert asked() == len(tiny.store)
    array, mark = folder / VECTORS, folder / "shard_0000000016.json"
    content = array.read_bytes()
    stop = 32 * 4 * config.model.embedding  # size of the second shard in bytes
    if harm == "cut":  # the third shard is missing too
        array.write_bytes(content[: stop - 8])
    elif harm == "altered":
        damaged = bytearray(content)
        damaged[stop - 1] ^= 1
        array.write_bytes(damaged)
    elif harm == "unmarked":
        mark.unlink()
    else:
        mark.write_bytes(mark.read_bytes()[:4])
    assert asked() == again
    assert array.read_bytes() == content


def test_refresh_publishes_what_the_trainer_needs(run, config, parameters, tiny):
    assert refresh(run, publish_with_probes(run, 6, config, parameters), threading.Event())
    index = open_index(run.published_index / step_name(6))
    manifest = index.manifest
    assert manifest["corpus_hash"] == tiny.store.corpus_hash
    assert manifest["config_hash"] == config_lib.model_hash(config)
    assert (manifest["passages"], manifest["dims"], manifest["recall"]) == (40, 8, 1.0)
    jax.tree.map(np.testing.assert_array_equal, index.query_params, parameters["embedder"])
    encoder = Encoder(config, tiny.store.vocabulary.size)
    vectors = encoder.embed_passages(parameters["embedder"], tiny.store, np.arange(40))
    found, _ = index.searcher.search(vectors, 1)
    np.testing.assert_array_equal(index.rows[found[:, 0]], np.argmax(vectors @ vectors.T, axis=1))
    assert not run.shards(6).exists()


def test_shapes_come_from_the_snapshot(run, tiny):
    for step, width in ((1, 8), (2, 4)):
        config = tiny_config(tiny.folder, model__layers=1, model__embedding=width)
        parameters = embedder_parameters(config, tiny.store.vocabulary.size)
        refresh(run, publish_with_probes(run, step, config, parameters), threading.Event())
        assert open_index(run.published_index / step_name(step)).searcher.dims == width


@pytest.fixture
def low_recall(monkeypatch):
    """Measures a recall of 0.6 instead of 1, which the search of a small corpus has."""
    monkeypatch.setattr(Probes, "recall", lambda *_: 0.6)


@pytest.mark.usefixtures("low_recall")
def test_an_index_below_the_recall_floor_is_not_published(run, parameters, tiny):
    config = tiny_config(tiny.folder, model__layers=1, builder__recall_floor=0.9)
    with pytest.raises(RealmError, match=r"recall@10[\s\S]*recall_floor[\s\S]*rescore=float32"):
        refresh(run, publish_with_probes(run, 0, config, parameters), threading.Event())
    assert commit.latest(run.published_index) is None
    assert run.shards(0).exists()
    beat = heartbeat.last_beat(run, "index_builder")
    assert (beat["state"], beat["done"], beat["total"]) == ("building", 40, 40)


@pytest.mark.usefixtures("low_recall")
def test_search_settings_come_from_the_last_start_of_the_run(run, parameters, tiny):
    """A snapshot whose index was below the floor can then be built with other settings."""
    before = tiny_config(tiny.folder, model__layers=1, builder__recall_floor=0.9)
    written = publish_with_probes(run, 0, before, parameters)
    with pytest.raises(RealmError, match="recall_floor"):
        refresh(run, written, threading.Event())
    now = tiny_config(tiny.folder, model__layers=1, builder__recall_floor=0.5, search__kind="scann")
    run.config.write_text(config_lib.to_json(now))
    assert refresh(run, written, threading.Event())
    assert open_index(run.published_index / step_name(0)).searcher.kind == "scann"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"search__kind": "mesh", "retrieval__search_with": "fresh"}, {"search__kind": "scann"}),
        ({"search__kind": "exact", "retrieval__rerank": 20}, {"search__kind": "mesh"}),
    ],
)
def test_an_old_snapshot_is_built_with_the_current_searcher(run, parameters, tiny, before, now):
    first = tiny_config(tiny.folder, model__layers=1, **before)
    written = publish_with_probes(run, 0, first, parameters)
    now = tiny_config(tiny.folder, model__layers=1, builder__recall_floor=0.1, **now)
    run.config.write_text(config_lib.to_json(now))
    assert refresh(run, written, threading.Event())
    assert open_index(run.published_index / step_name(0)).searcher.kind == now.search.kind


def test_the_builder_ends_with_the_run_and_builds_the_newest_snapshot(run, config, parameters):
    for step in (2, 4):
        publish_with_probes(run, step, config, parameters)
    follow.mark_end(run)
    assert run_builder(str(run.root), 0.02, threading.Event()) == 1
    assert commit.steps(run.published_index) == [4]
    assert heartbeat.last_beat(run, "index_builder")["state"] == "stopped"
    assert run_builder(str(run.root), 0.02, threading.Event()) == 0


def test_a_waiting_builder_logs_the_folder_it_watches(run, caplog):
    """The user can then see whether the path is correct."""
    stop = threading.Event()
    stop.set()
    with caplog.at_level("INFO"):
        run_builder(str(run.root), 0.02, stop)
    assert f"waiting for the first snapshot in {run.snapshots}" in caplog.text


def test_a_damaged_snapshot_is_skipped_and_the_next_one_built(run, config, parameters, caplog):
    publish_with_probes(run, 2, config, parameters)
    damaged = run.snapshots / step_name(2) / "config.json"
    damaged.write_text(damaged.read_text() + " ")
    stop, built = threading.Event(), []
    builder = threading.Thread(
        target=lambda: built.append(run_builder(str(run.root), 0.02, stop)), daemon=True
    )
    builder.start()
    until = time.monotonic() + 120
    while "skipping the snapshot of step 2" not in caplog.text:
        assert time.monotonic() < until
        time.sleep(0.01)
    publish_with_probes(run, 4, config, parameters)
    follow.mark_end(run)
    builder.join(300)
    assert built == [1]
    assert commit.steps(run.published_index) == [4]
