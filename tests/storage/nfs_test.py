"""Folders whose files are still in use are deleted on NFS, where such files stay as `.nfs*`."""

import errno
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from support.nfs import nfs_client

from realm_jax.artifacts.verify import check
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir, step_name


@pytest.fixture
def folder(tmp_path):
    """A folder on NFS: `a/mapped.npy`, `b` and `c/d`."""
    folder = epath.Path(tmp_path) / "folder"
    for name in ("a", "c"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "a" / "mapped.npy", np.arange(4))
    files.write_bytes(folder / "b", b"b")
    files.write_bytes(folder / "c" / "d", b"d")
    with nfs_client(tmp_path):
        yield folder


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def test_a_folder_is_deleted_although_a_file_in_it_is_memory_mapped(folder):
    mapped = np.load(folder / "a" / "mapped.npy", mmap_mode="r")
    for _ in range(2):  # the second finds only the file that is in use
        files.delete_tree(folder)
        assert names(folder)[0] == "a" and names(folder)[1].startswith("a/.nfs")
        assert len(names(folder)) == 2 and files.list_files(folder) == []
    assert mapped.tolist() == [0, 1, 2, 3]
    del mapped
    files.delete_tree(folder)
    assert not folder.exists()


def test_a_folder_is_deleted_although_a_file_in_it_is_open(folder):
    with (folder / "b").open("rb") as opened:
        files.delete_tree(folder)
        assert files.list_files(folder) == [] and opened.read() == b"b"


def test_other_errors_of_a_deletion_are_raised(folder, monkeypatch):
    def busy(*_, **__):
        raise OSError(errno.EBUSY, "Device or resource busy", "a mount point")

    monkeypatch.setattr("os.unlink", busy)
    with pytest.raises(OSError, match="a mount point"):
        files.delete_tree(folder)


def test_a_step_is_published_again_and_verified_although_its_old_files_are_in_use(tmp_path):
    run = RunDir(tmp_path)
    step = run.snapshots / step_name(2)

    def write(folder):
        np.save(folder / "it.npy", np.arange(4))

    with nfs_client(tmp_path):
        commit.publish(run.snapshots, 2, write, {"kind": "snapshot"})
        mapped = np.load(step / "it.npy", mmap_mode="r")
        files.delete_file(step / "MANIFEST.json")
        commit.publish(run.snapshots, 2, write, {"kind": "snapshot"})
    assert any(name.startswith(".nfs") for name in files.list_names(step))
    assert commit.data_files(step) == ["it.npy"] and check(run.root)["ok"]
    assert mapped.tolist() == [0, 1, 2, 3]
