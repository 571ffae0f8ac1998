"""An index of segments: made one after the other, by one or several workers, published as one."""

import itertools
import shutil
import threading
import weakref

import numpy as np
import pytest
from support.index_of_segments import config_of, damage, opened, shards_of
from support.nfs import nfs_client
from support.object_store import BUCKET, serve_object_store
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import open_index
from realm_jax.corpus.generations import write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import RealmError, Stopped
from realm_jax.index_builder import built_segments, segment_maker
from realm_jax.index_builder import run as index_builder
from realm_jax.index_builder.built_segments import segment_bounds, segment_search
from realm_jax.index_builder.recall import PROBE_HITS, Probes, merged
from realm_jax.index_builder.refresh import refresh
from realm_jax.index_builder.worker import Worker
from realm_jax.parallel import hosts
from realm_jax.retrieval import search_plan
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher
from realm_jax.retrieval.spread_searcher import is_of_other_host, load_spread
from realm_jax.storage import commit, files, follow
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import RunDir, step_name


def equal(one, other):
    np.testing.assert_array_equal(one.vectors, other.vectors)
    queries = np.asarray(one.vectors, np.float32)[::3]
    mine, theirs = (index.searcher.search(queries, 7) for index in (one, other))
    np.testing.assert_array_equal(mine[0], theirs[0])
    np.testing.assert_array_equal(mine[1], theirs[1])


def test_segments_are_of_equal_size_and_a_mesh_index_has_one(tiny):
    for size, count in ((12, 1), (13, 2), (40, 4)):
        bounds = segment_bounds(size, config_of(tiny))
        assert len(bounds) == count and (bounds[0][0], bounds[-1][1]) == (0, size)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds))
        sizes = [stop - start for start, stop in bounds]
        assert max(sizes) - min(sizes) <= 1 and max(sizes) <= 12
    assert segment_bounds(40, config_of(tiny, search__kind="mesh")) == [(0, 40)]


def test_segments_are_built_one_after_the_other_and_published_as_one_index(
    run, publish, embedded, tiny, tmp_path, monkeypatch, collect_garbage
):
    vectors, embed_corpus = [], segment_maker.embed_corpus

    def only_one(*given):
        collect_garbage()
        assert all(one() is None for one in vectors), "an earlier segment is still in memory"
        made = embed_corpus(*given)
        vectors.append(weakref.ref(made))
        return made

    monkeypatch.setattr(segment_maker, "embed_corpus", only_one)
    metrics = refresh(run, publish(run, 2, config_of(tiny)), threading.Event())
    assert embedded == shards_of(0, 1, 2, 3) and len(vectors) == 4
    assert not run.shards(2).exists()
    assert metrics["recall"] == metrics["recall_passages"] == 1.0
    assert metrics["seconds_embed"] > 0
    found = opened(run)
    assert found.manifest["searcher"] == "segmented" and found.manifest["passages"] == 40
    assert [one["trained_step"] for one in found.manifest["segments"]] == [2] * 4
    assert [one.size for one in found.searcher.segments] == [10] * 4
    whole = RunDir(tmp_path / "whole")
    plain = config_of(tiny, search__segment_passages=40)
    refresh(whole, publish(whole, 2, plain), threading.Event())
    expected = opened(whole)
    assert expected.searcher.kind == "exact"
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-3)
    queries = np.asarray(expected.vectors, np.float32)
    np.testing.assert_allclose(
        found.searcher.search(queries, 9)[1], expected.searcher.search(queries, 9)[1], atol=1e-2
    )


@pytest.mark.parametrize("segment_passages", [12, 40])
def test_shards_are_not_mapped_when_they_are_deleted(
    run, publish, tiny, tmp_path, segment_passages
):
    """An NFS client would keep the files of the shards until they are closed."""
    snapshot = publish(run, 2, config_of(tiny, search__segment_passages=segment_passages))
    with nfs_client(tmp_path):
        assert refresh(run, snapshot, threading.Event())
    assert files.list_names(run.builder) == []


def test_a_damaged_segment_whose_searcher_is_open_is_made_again_on_nfs(
    run, publish, tiny, tmp_path, monkeypatch
):
    snapshot = publish(run, 2, config_of(tiny))
    stopped_at(24, run, snapshot, monkeypatch)
    folder = run.shards(2) / "segment_00001"
    damage(folder / "vectors.npy")
    opened_file = next(path for path in (folder / "searcher").iterdir() if path.is_file())
    with opened_file.open("rb"), nfs_client(tmp_path):
        refresh(run, snapshot, threading.Event())
    assert len(opened(run).searcher.segments) == 4


def test_workers_make_different_segments(run, publish, embedded, tiny, tmp_path):
    one = RunDir(tmp_path / "one")
    refresh(one, publish(one, 2, config_of(tiny)), threading.Event())
    embedded.clear()
    publish(run, 2, config_of(tiny))
    follow.mark_end(run)
    published = [None] * 3

    def work(number):
        given = (str(run.workdir), 0.02, threading.Event(), Worker(number, 3))
        published[number] = index_builder.run(*given)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    [worker.start() for worker in workers]
    [worker.join(600) for worker in workers]
    assert published == [1, 0, 0]
    assert sorted(embedded) == shards_of(0, 1, 2, 3)
    assert files.list_names(run.builder) == []
    equal(opened(run), opened(one))


def stopped_at(passage, run, snapshot, monkeypatch):
    """Stops a refresh after the shard that begins with a passage."""
    stop, embed = threading.Event(), Encoder.embed_passages

    def stopped(self, params, store, ids):
        if ids[0] == passage and len(ids) <= 4:
            stop.set()
        return embed(self, params, store, ids)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Encoder, "embed_passages", stopped)
        refresh(run, snapshot, stop)


def test_shards_of_other_segments_are_not_used(run, publish, tiny, tmp_path, monkeypatch):
    """The second segment began at passage 10, and now begins at passage 20."""
    snapshot, fresh = publish(run, 2, config_of(tiny)), RunDir(tmp_path / "fresh")
    stopped_at(14, run, snapshot, monkeypatch)
    now = config_of(tiny, search__segment_passages=20)
    run.config.write_text(config_lib.to_json(now))
    refresh(run, snapshot, threading.Event())
    refresh(fresh, publish(fresh, 2, now), threading.Event())
    assert [one.size for one in opened(run).searcher.segments] == [20, 20]
    equal(opened(run), opened(fresh))


def test_a_killed_builder_resumes_at_its_unfinished_segment_and_shard(
    run, publish, embedded, tiny, monkeypatch
):
    snapshot = publish(run, 2, config_of(tiny))
    stopped_at(24, run, snapshot, monkeypatch)
    assert embedded == [*shards_of(0, 1), 20, 24]
    embedded.clear()
    damage(run.shards(2) / "segment_00001" / "vectors.npy")
    refresh(run, snapshot, threading.Event())
    assert embedded == [28, *shards_of(3), *shards_of(1)]
    found = opened(run)
    queries = np.asarray(found.vectors, np.float32)
    exact = ExactSearcher(queries).search(queries, 1)[1]
    np.testing.assert_allclose(found.searcher.search(queries, 1)[1], exact, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["segment.finished:2=error", "file=short", "file=full"])
def test_a_builder_that_fails_at_any_point_finishes_what_it_had_begun(
    run, publish, tiny, tmp_path, point
):
    """With `file`, at each file operation in turn; each attempt resumes the one before."""
    snapshot, one = publish(run, 2, config_of(tiny)), RunDir(tmp_path / "one")
    failures = 0
    for number in range(1, 1000):
        with armed(point.replace("=", f":{number}=") if point.startswith("file") else point):
            try:
                refresh(run, snapshot, threading.Event())
                break
            except OSError:
                failures += 1
    assert failures == number - 1 > 1
    refresh(one, publish(one, 2, config_of(tiny)), threading.Event())
    equal(opened(run), opened(one))
    assert files.list_names(run.builder) == []


def test_segments_of_other_search_settings_are_made_again(
    run, publish, embedded, tiny, monkeypatch
):
    snapshot = publish(run, 2, config_of(tiny, builder__recall_floor=0.9))
    monkeypatch.setattr(Probes, "recall", lambda *_: 0.8)  # that of exact search is 1
    with pytest.raises(RealmError, match=r"below the floor[\s\S]*segment 0 of the index of step 2"):
        refresh(run, snapshot, threading.Event())
    assert embedded == shards_of(0) and commit.latest(run.published_index) is None
    run.config.write_text(config_lib.to_json(config_of(tiny, builder__recall_floor=0.5)))
    refresh(run, snapshot, threading.Event())
    assert embedded == shards_of(0, 1, 2, 3)
    assert len(opened(run).searcher.segments) == 4


def test_leaves_of_a_segment_are_those_of_one_index_within_twice_the_root_of_its_rows():
    config = tiny_config()
    found = [segment_search(config, size).leaves for size in (99_999, 100_000, 2_000_000)]
    assert found == [0, 316, 1414] and config.search.leaves == 0
    found = [segment_search(config, size).leaves for size in (6_000_000, 10**8, 10**9)]
    assert found == [2449, 2828, 2828]
    config = tiny_config(search__leaves=50)
    assert segment_search(config, 13_353_718).leaves == 50


def test_each_segment_keeps_its_partitions(run, publish, tiny, monkeypatch, caplog):
    """Codes of few rows, which the plan otherwise does not make."""
    monkeypatch.setattr(search_plan, "BRUTE_FORCE_BELOW", 10)
    monkeypatch.setattr(built_segments, "TREE_FROM", 10)
    settings = {"search__kind": "faiss", "search__segment_passages": 20, "builder__reencode": True}
    floor = {"builder__recall_floor": 0.0, "builder__reencode_loss": 1.0}
    for step in (2, 4):
        config = config_of(tiny, **settings, **floor)
        refresh(run, publish(run, step, config), threading.Event())
    assert [one["trained_step"] for one in opened(run, 4).manifest["segments"]] == [2, 2]
    assert [one.plan["leaves"] for one in opened(run, 4).searcher.segments] == [6, 6]
    kept = run.published_index / step_name(4) / "searcher" / "segment_00001" / "mean.npy"
    damage(kept)
    refresh(run, publish(run, 6, config), threading.Event())
    assert [one["trained_step"] for one in opened(run, 6).manifest["segments"]] == [2, 6]
    assert "segment 1 of step 4 cannot be re-encoded" in caplog.text


@pytest.mark.slow
def test_segments_on_an_object_store_are_those_on_a_disk(publish, tiny, tmp_path, monkeypatch):
    """A host that loads some segments reads only their files."""
    config = config_of(tiny, refresh__mode="rolling", builder__recall_floor=0.9)
    with serve_object_store() as traffic:
        runs = RunDir(f"{BUCKET}/run"), RunDir(tmp_path / "run")
        for one in runs:
            for step in (2, 4):
                refresh(one, publish(one, step, config), threading.Event())
        remote, local = (opened(one, 4) for one in runs)
        equal(remote, local)
        assert remote.manifest["segments"] == local.manifest["segments"]
        assert files.list_names(runs[0].builder) == []
        monkeypatch.setattr(hosts, "process_count", lambda: 2)
        traffic.clear()
        folder = runs[0].published_index / step_name(4)
        index = open_index(folder, None, None, load_spread, is_of_other_host)
        assert index.searcher.kind == "spread" and len(index.rows) == 40
        read = {one.path.split("segment_0000")[1][0] for one in traffic.of("GET", "segment_0000")}
        assert read == {"0", "2"}


def test_removed_passages_are_not_in_the_index(run, publish, tiny, tmp_path):
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny.folder, corpus)
    write_passages_generation(corpus, [], [3, 17])
    for step, most in ((2, 12), (4, 40)):
        config = config_of(tiny, search__segment_passages=most, corpus__knowledge=str(corpus))
        refresh(run, publish(run, step, config), threading.Event())
        index = opened(run, step)
        np.testing.assert_array_equal(index.rows, PassageStore.open(corpus).live_ids())
        assert len(index.vectors) == index.manifest["passages"] == 38


def test_recall_of_an_index_is_measured_from_the_hits_in_its_segments():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(300, 8)).astype(np.float32)
    queries = random.normal(size=(50, 8)).astype(np.float32)
    rough = vectors + 0.3 * random.normal(size=vectors.shape).astype(np.float32)
    parts = [slice(0, 5), slice(5, 120), slice(120, 300)]  # one has fewer rows than hits
    searchers = [ExactSearcher(rough[part]) for part in parts]
    hits = [
        Probes(vectors[part], queries).hits(one) for part, one in zip(parts, searchers, strict=True)
    ]
    together = merged(hits)
    assert together.exact.shape == (50, PROBE_HITS)
    expected = Probes(vectors, queries).recall(SegmentedSearcher(searchers))
    assert together.recall() == expected and 0.3 < expected < 0.9
