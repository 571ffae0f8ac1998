"""Finished shards survive a restart; their checksums are verified before they are reused."""

import numpy as np
import pytest

from realm_jax.index_builder.shards import MappedShards, ShardFiles, open_shards

N, E = 40, 8


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(N, E)).astype(np.float32)


def stored(folder, vectors):
    """Saves two of the three shards of 16 rows."""
    with open_shards(folder, N, E) as shards:
        shards.save(0, vectors[:16])
        shards.save(32, vectors[32:])
        return shards


@pytest.fixture(params=[MappedShards, ShardFiles])
def folder(request, tmp_path, monkeypatch):
    """An object store is simulated by a local folder, which has to exist."""
    from etils import epath

    from realm_jax.storage import files

    monkeypatch.setattr(files, "is_local", lambda path: request.param is MappedShards)
    monkeypatch.setattr(files, "write_bytes", lambda path, data: path.write_bytes(data))
    folder = epath.Path(tmp_path) / "shards"
    folder.mkdir()
    return folder


def test_finished_shards_are_reused_after_a_restart(folder, vectors):
    stored(folder, vectors)
    with open_shards(folder, N, E) as shards:
        assert [shards.load(0, 16), shards.load(16, 32), shards.load(32, N)] == [True, False, True]
    np.testing.assert_array_equal(shards.vectors[:16], vectors[:16])
    np.testing.assert_array_equal(shards.vectors[32:], vectors[32:])


def test_shards_of_another_size_are_not_reused(folder, vectors):
    stored(folder, vectors)
    with open_shards(folder, N, E) as shards:
        assert not shards.load(0, 20)


def test_altered_rows_are_not_reused(folder, vectors):
    stored(folder, vectors)
    data = next(path for path in sorted(folder.iterdir()) if path.suffix in (".f32", ".npy"))
    content = bytearray(data.read_bytes())
    content[-1 if data.suffix == ".npy" else 0] ^= 1
    data.write_bytes(bytes(content))
    with open_shards(folder, N, E) as shards:
        assert not shards.load(0, 16)
        assert shards.load(32, N)


def test_vectors_stay_usable_after_the_folder_is_deleted(folder, vectors):
    with open_shards(folder, N, E) as shards:
        for start in range(0, N, 16):
            shards.save(start, vectors[start : start + 16])
        folder.rmtree()
    np.testing.assert_array_equal(shards.vectors, vectors)
