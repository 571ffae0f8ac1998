"""An object store receives and sends each byte of an artifact once: what is verified is loaded."""

import numpy as np
import pytest
from support.object_store import BUCKET, serve_object_store
from support.steps import KINDS, NEW, OLD

from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.errors import DamageError
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage import commit, files
from realm_jax.storage.layout import MANIFEST, SEARCHER, RunDir, step_name
from realm_jax.storage.staging import local_to_read

VECTORS = np.random.default_rng(0).normal(size=(30_000, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def traffic():
    """Serves an empty bucket; yields its record of requests."""
    with serve_object_store() as traffic:
        yield traffic


def publish(run, step, still_allowed=lambda: None):
    """Publishes an index of 12 MB."""
    rows, fields = np.arange(len(VECTORS)), {"corpus_hash": "c0ffee"}
    parameters = {"w": np.ones((3, 3), np.float32)}
    searcher = ExactSearcher(VECTORS)
    arguments = (searcher, rows, VECTORS, parameters, fields, "{}", still_allowed)
    return publish_index(run, step, *arguments)


def size_of(folder):
    return sum(one["bytes"] for one in commit.read_manifest(folder)["files"].values())


def test_index_is_uploaded_once_and_downloaded_once(traffic):
    run = RunDir(f"{BUCKET}/bytes")
    folder = run.published_index / step_name(1)
    traffic.clear()
    publish(run, 1)
    published = size_of(folder)
    assert published > 10e6
    assert published <= traffic.bytes_written() < 1.01 * published
    assert traffic.bytes_read() < 0.1 * published
    traffic.clear()
    index = open_index(folder)
    assert published <= traffic.bytes_read() < 1.01 * published
    assert len(traffic.requests) < 2 * len(index.manifest["files"])
    np.testing.assert_array_equal(index.vectors, VECTORS.astype(np.float16))  # still mapped
    np.testing.assert_array_equal(index.searcher.search(VECTORS[:3], 1)[0][:, 0], np.arange(3))


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_of_an_artifact_is_read_once(traffic, kind):
    publish, assert_intact, folder = KINDS[kind]
    run = RunDir(f"{BUCKET}/{kind}")
    for step in (OLD, NEW):
        publish(run, step)
    step_folder = run.root / folder / step_name(NEW)
    names = commit.read_manifest(step_folder)["files"]
    traffic.clear()
    assert_intact(run, NEW)
    reads = [
        one.path.split(f"{step_name(NEW)}/")[-1].rstrip("?")
        for one in traffic.of("GET", step_name(NEW))
    ]
    assert {name: reads.count(name) for name in names} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_on_the_store_is_found_and_named(traffic, kind):
    publish, assert_intact, folder = KINDS[kind]
    run = RunDir(f"{BUCKET}/damaged_{kind}")
    publish(run, NEW)
    step_folder = run.root / folder / step_name(NEW)
    name, recorded = max(
        commit.read_manifest(step_folder)["files"].items(), key=lambda one: one[1]["bytes"]
    )
    (step_folder / name).write_bytes(bytes(recorded["bytes"]))
    with pytest.raises(DamageError) as error:
        assert_intact(run, NEW)
    assert f"{step_folder / name}" in str(error.value)


def test_index_whose_searcher_was_deleted_during_the_upload_is_not_published(traffic):
    """As by the retention of another builder; its manifest would list the remaining files."""
    run = RunDir(f"{BUCKET}/overtaken")
    folder = run.published_index / step_name(1)
    with pytest.raises(commit.OvertakenError, match=SEARCHER):
        publish(run, 1, lambda: files.delete_tree(folder / SEARCHER))
    assert not (folder / MANIFEST).exists()
    assert commit.latest(run.published_index) is None


def test_lock_is_asserted_before_each_upload(traffic):
    run = RunDir(f"{BUCKET}/uploads")
    calls = []

    def lost_at_the_third():
        calls.append(traffic.of("PUT", "uploads/published_index"))
        if len(calls) == 3:
            raise PermissionError("lost")

    traffic.clear()
    with pytest.raises(PermissionError, match="lost"):
        publish(run, 1, lost_at_the_third)
    assert [len(puts) for puts in calls] == [1, 2, 3]  # the first is that of WRITER.json


def test_copy_of_a_folder_lacks_files_that_are_deleted_meanwhile(traffic, monkeypatch):
    folder = RunDir(f"{BUCKET}/copied").root
    for name in ("a", "deep/b"):
        files.write_bytes(folder / name, name.encode())
    list_files = files.list_files

    def list_then_delete(path):
        names = list_files(path)
        files.delete_file(folder / "a")
        return names

    monkeypatch.setattr(files, "list_files", list_then_delete)
    with local_to_read(folder) as copy:
        assert list_files(copy) == ["deep/b"]
