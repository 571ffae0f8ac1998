"""Finished shards survive a restart; their checksums are verified before they are reused."""

import numpy as np
import pytest
from etils import epath

from realm_jax.index_builder.shards import CopiedShards, MappedShards, open_shards

N, E = 40, 8


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(N, E)).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path) / "shards"


@pytest.fixture(params=[MappedShards, CopiedShards])
def opened(request, folder):
    """Opens the shards as the only builder, or as one of several."""

    def opened(corpus_hash="corpus"):
        return open_shards(folder, N, E, corpus_hash, shared=request.param is CopiedShards)

    with opened() as shards:
        assert isinstance(shards, request.param)
    return opened


@pytest.fixture
def stored(opened, vectors):
    """Two of the three shards of 16 rows are saved."""
    with opened() as shards:
        shards.save(0, vectors[:16])
        shards.save(32, vectors[32:])


def test_finished_shards_are_reused_after_a_restart(opened, stored, vectors):
    with opened() as shards:
        assert shards.stored() == {0, 32}
        assert [shards.load(0, 16), shards.load(16, 32), shards.load(32, N)] == [True, False, True]
    np.testing.assert_array_equal(shards.vectors[:16], vectors[:16])
    np.testing.assert_array_equal(shards.vectors[32:], vectors[32:])


def test_shards_of_another_corpus_are_not_reused(opened, stored):
    with opened("another") as shards:
        assert not shards.load(0, 16) and not shards.load(32, N)


def test_shards_of_another_size_are_not_reused(opened, stored):
    with opened() as shards:
        assert not shards.load(0, 20) and not shards.load(0, 12)


@pytest.mark.parametrize("harm", ["first byte", "last byte", "cut", "empty"])
def test_a_damaged_shard_is_not_reused(opened, stored, folder, harm):
    data = next(path for path in sorted(folder.iterdir()) if path.suffix == ".f32")
    content = bytearray(data.read_bytes())
    last = 16 * E * 4 - 1 if data.name == "vectors.f32" else len(content) - 1
    if harm in ("first byte", "last byte"):
        content[0 if harm == "first byte" else last] ^= 1
    rest = {"cut": content[: last - 3], "empty": b""}.get(harm, content)
    data.write_bytes(bytes(rest))
    with opened() as shards:
        assert not shards.load(0, 16)
        if data.name != "vectors.f32" or "byte" in harm:
            assert shards.load(32, N)


def test_a_deleted_shard_is_not_stored(opened, stored):
    with opened() as shards:
        shards.delete(0)
        assert shards.stored() == {32} and not shards.load(0, 16)


def test_vectors_stay_usable_after_the_folder_is_deleted(opened, folder, vectors):
    with opened() as shards:
        for start in range(0, N, 16):
            shards.save(start, vectors[start : start + 16])
        folder.rmtree()
    np.testing.assert_array_equal(shards.vectors, vectors)


def test_a_shared_shard_is_one_file(folder, vectors):
    with open_shards(folder, N, E, "corpus", shared=True) as shards:
        shards.save(16, vectors[16:32])
    assert [path.name for path in folder.iterdir()] == ["shard_0000000016.f32"]
