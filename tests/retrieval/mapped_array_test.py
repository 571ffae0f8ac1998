"""Memory-mapped arrays: allocated at once, deleted with the array, contents kept on reopening."""

import errno
import os

import numpy as np
import pytest

from realm_jax.retrieval.mapped_array import map_array, open_or_create, temporary_array


def test_a_temporary_array_leaves_no_file(tmp_path):
    array = temporary_array((5, 3), tmp_path)
    array[:] = 7.0
    assert array.shape == (5, 3) and array.dtype == np.float32 and array.sum() == 105.0
    assert list(tmp_path.iterdir()) == []


def test_disk_blocks_are_allocated_before_the_first_write(tmp_path):
    with open_or_create(tmp_path / "a") as file:
        array = map_array(file, (1000, 64))
    assert (tmp_path / "a").stat().st_size == 4 * 64 * 1000
    assert (tmp_path / "a").stat().st_blocks * 512 >= 4 * 64 * 1000
    assert not array.any()


def test_reopening_keeps_the_rows_and_grows_the_file(tmp_path):
    with open_or_create(tmp_path / "a") as file:
        map_array(file, (2, 2))[:] = [[1, 2], [3, 4]]
    with open_or_create(tmp_path / "a") as file:
        array = map_array(file, (3, 2))
    np.testing.assert_array_equal(array, [[1, 2], [3, 4], [0, 0]])


def test_a_full_disk_is_an_error_and_not_a_crash(tmp_path, monkeypatch):
    def full(descriptor, start, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        temporary_array((5, 3), tmp_path)


def test_systems_without_fallocate_write_the_blocks(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    with open_or_create(tmp_path / "a") as file:
        map_array(file, (2, 2))[:] = 5.0
        array = map_array(file, (3, 2))
    np.testing.assert_array_equal(array, [[5, 5], [5, 5], [0, 0]])
