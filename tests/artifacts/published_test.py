"""Snapshots and indexes are read back as published; mismatches and damage are named."""

import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from support.object_store import BUCKET, serve_object_store
from support.probes import random_probes
from support.tiny_corpus import tiny_config

from realm_jax import config as configs
from realm_jax.artifacts.params import load_parameters, save_parameters
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.artifacts.verify import check
from realm_jax.errors import DamageError, MismatchError
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage import commit, files
from realm_jax.storage.layout import MANIFEST, RunDir, step_name

TREE = {
    "encoder": {"layers": {"0": {"kernel": jnp.arange(12.0).reshape(3, 4)}}},
    "half": jnp.full((5,), 1.5, jnp.bfloat16),
    "count": np.arange(3, dtype=np.int32),
    "scalar": jnp.float32(2.5),
}
FIELDS = {"snapshot_step": 500, "config_hash": "c0ffee", "corpus_hash": "abc", "recall": 0.99}


def assert_same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for mine, theirs in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        assert type(theirs) is np.ndarray and theirs.dtype == mine.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(params=["exact", "mesh", "scann"])
def index(request, tmp_path):
    run = RunDir(tmp_path / "run")
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    searcher = build_searcher(request.param, vectors, configs.default().search)
    rows = np.arange(50)[::-1] * 10
    assert publish_index(run, 500, searcher, rows, vectors, TREE, FIELDS, "{}")
    return run, searcher, rows, vectors


def test_sharded_parameters_are_read_back_as_numpy(tmp_path):
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    sharded = {"w": jax.device_put(jnp.arange(64.0).reshape(16, 4), sharding)}
    save_parameters(epath.Path(tmp_path) / "p", sharded)
    assert_same(jax.device_get(sharded), load_parameters(epath.Path(tmp_path) / "p"))


def test_run_folder_may_be_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDir("runs/mine")
    publish_snapshot(run, 3, {"w": np.arange(4.0)}, "{}", {"config_hash": "c"})
    snapshot = read_snapshot(run.snapshots / step_name(3))
    np.testing.assert_array_equal(snapshot.params["w"], np.arange(4.0))


def test_probe_queries_of_a_snapshot_are_read_back(tmp_path):
    run, config = RunDir(tmp_path), tiny_config()
    probes = random_probes(config)
    publish_snapshot(run, 2, TREE, "{}", {}, probes=probes)
    found = read_snapshot(run.snapshots / step_name(2)).require_probes()
    for part, expected in zip(found, probes, strict=True):
        assert part.dtype == expected.dtype
        np.testing.assert_array_equal(part, expected)


def test_a_snapshot_without_probe_queries_is_refused_by_the_builder(tmp_path):
    run = RunDir(tmp_path)
    publish_snapshot(run, 2, TREE, "{}", {})
    snapshot = read_snapshot(run.snapshots / step_name(2))
    with pytest.raises(MismatchError, match=r"(?s)no probe queries.*step 2.*continue the run"):
        snapshot.require_probes()


def test_snapshot_written_in_a_thread_is_read_back(tmp_path):
    run = RunDir(tmp_path)
    arguments = (run, 500, TREE, '{"seed": 0}', {"config_hash": "c0ffee"})
    thread = threading.Thread(target=publish_snapshot, args=arguments)
    thread.start()
    thread.join()
    snapshot = read_snapshot(run.snapshots / step_name(500))
    assert_same(TREE, snapshot.params)
    assert (snapshot.step, snapshot.config_json) == (500, '{"seed": 0}')
    assert snapshot.manifest["config_hash"] == "c0ffee"
    assert not publish_snapshot(*arguments)


def test_finished_orbax_folder_without_manifest_is_not_published(tmp_path):
    run = RunDir(tmp_path)
    publish_snapshot(run, 500, TREE, "{}", {})
    (run.snapshots / step_name(900)).mkdir()
    save_parameters(run.snapshots / step_name(901) / "parameters", TREE)
    assert commit.latest(run.snapshots) == 500


def test_index_is_read_back_after_the_run_folder_moved(index, tmp_path):
    run, searcher, rows, vectors = index
    shutil.move(run.root, tmp_path / "moved")
    folder = RunDir(tmp_path / "moved").published_index / step_name(500)
    opened = open_index(folder, expect={"corpus_hash": "abc", "dims": 8})
    assert (opened.step, opened.manifest["recall"], opened.config_json) == (500, 0.99, "{}")
    assert opened.rows.dtype == np.int64
    np.testing.assert_array_equal(opened.rows, rows)
    np.testing.assert_array_equal(opened.vectors, vectors.astype(np.float16))
    assert_same(TREE, opened.query_params)
    hits, scores = searcher.search(vectors, 5)
    opened_hits, opened_scores = opened.searcher.search(vectors, 5)
    np.testing.assert_array_equal(opened_hits, hits)
    # BLAS rounds by the alignment of its input: a mapped file and an array in memory may differ.
    np.testing.assert_allclose(opened_scores, scores, rtol=1e-6)
    assert check(folder) == {"ok": True, "kind": "published_index", "problems": []}


def test_index_of_another_corpus_or_width_is_refused(index):
    folder = index[0].published_index / step_name(500)
    with pytest.raises(MismatchError, match=r"corpus_hash xyz\n.*corpus_hash abc"):
        open_index(folder, expect={"corpus_hash": "xyz"})
    with pytest.raises(MismatchError, match=r"dims 128\n.*dims 8"):
        open_index(folder, expect={"dims": 128})
    with pytest.raises(MismatchError, match="stage None"):
        open_index(folder, expect={"stage": "realm"})


def test_row_map_of_another_length_is_refused(index):
    run, searcher, rows, vectors = index
    with pytest.raises(MismatchError, match="50 rows"):
        publish_index(run, 600, searcher, rows[:-1], vectors[:-1], TREE, FIELDS, "{}")
    assert commit.latest(run.published_index) == 500


def test_flipped_byte_is_found_in_every_file_of_an_index(index):
    folder = index[0].published_index / step_name(500)
    for name in files.list_files(folder):
        if name == MANIFEST or not (sound := (folder / name).read_bytes()):
            continue
        flipped = bytearray(sound)
        flipped[len(sound) // 2] ^= 1
        (folder / name).write_bytes(flipped)
        with pytest.raises(DamageError, match=name):
            open_index(folder)
        assert [problem["file"] for problem in check(folder)["problems"]] == [name]
        (folder / name).write_bytes(sound)
    assert check(folder)["ok"]


def test_index_on_an_object_store_is_staged_through_local_folders(index):
    _, searcher, rows, vectors = index
    with serve_object_store():
        run = RunDir(f"{BUCKET}/run")
        publish_index(run, 700, searcher, rows, vectors, TREE, FIELDS, "{}")
        opened = open_index(run.published_index / step_name(700))
    np.testing.assert_array_equal(opened.vectors, vectors.astype(np.float16))
    np.testing.assert_array_equal(
        opened.searcher.search(vectors, 3)[0], searcher.search(vectors, 3)[0]
    )


def test_check_of_a_run_names_files_relative_to_its_folder(index):
    run = index[0]
    publish_snapshot(run, 500, TREE, "{}", {})
    commit.publish(
        run.checkpoints("realm"),
        300,
        lambda folder: files.write_bytes(folder / "state", b"all of it"),
        {"kind": "checkpoint"},
    )
    (run.snapshots / step_name(600)).mkdir()
    assert check(run.root) == {"ok": True, "kind": "run", "problems": []}
    state = run.checkpoints("realm") / step_name(300) / "state"
    assert check(state.parent)["kind"] == "checkpoint"
    state.write_bytes(b"all 0f it")
    (run.snapshots / step_name(500) / MANIFEST).write_bytes(b"{")
    report = check(run.root)
    assert not report["ok"]
    assert {problem["file"] for problem in report["problems"]} == {
        "checkpoints/realm/00000300/state",
        "snapshots/00000500/MANIFEST.json",
    }


def test_check_does_not_mistake_other_folders_for_a_run(tmp_path):
    for name in ("export", "corpus", "snapshots"):
        (tmp_path / name).mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert check(tmp_path)["kind"] == "unknown"
    as_json = configs.to_json(configs.default())
    (tmp_path / "config.json").write_text(as_json)
    assert check(tmp_path) == {"ok": True, "kind": "run", "problems": []}
    unfinished = tmp_path / "snapshots" / step_name(500)
    unfinished.mkdir()
    (unfinished / "config.json").write_text(as_json)
    assert not check(unfinished)["ok"]


def test_check_of_an_unknown_folder_reports_a_problem(tmp_path):
    report = check(tmp_path)
    assert (report["ok"], report["kind"]) == (False, "unknown")
    assert report["problems"][0]["found"] == "nothing"
