"""Folders that are written shard by shard, after a kill at an awkward moment."""

import errno

import numpy as np
import pytest
from etils import epath
from support.small_files import files_of_at_most

from realm_jax.errors import InputError
from realm_jax.storage import integrity
from realm_jax.storage.appendable import FolderWriter
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import MANIFEST

NAMES = ("rows.npy",)


def write(folder, settings):
    with FolderWriter(folder, "rows", NAMES, settings) as writer:
        writer.array("rows.npy", np.int32).append(np.arange(3, dtype=np.int32))
        writer.commit()


@pytest.mark.parametrize("settings", [None, {"of": 3}])
def test_a_manifest_that_was_cut_short_does_not_stop_the_next_writer(tmp_path, settings):
    for n in range(1, 100):
        folder = tmp_path / str(n)
        try:
            with armed(f"file:{n}=short"):
                write(folder, settings)
            break
        except OSError:
            if not (folder / MANIFEST).exists():  # the manifest may be complete
                write(folder, settings)
        assert integrity.verify(epath.Path(folder)) == []
        assert not list(folder.glob("*.partial"))
    assert n > 3


def test_a_file_that_cannot_be_closed_after_another_is_reported(tmp_path):
    """The last rows are in memory until a file is closed: a full disk is found out there."""
    rows = {"small.npy": np.arange(9), "large.npy": np.arange(100), "third.npy": np.arange(9)}

    def write_all():
        with FolderWriter(tmp_path, "rows", tuple(rows), {"of": 100}) as writer:
            for name, appended in rows.items():
                writer.array(name, np.int64).append(appended)
            writer.commit()

    with files_of_at_most(500), pytest.raises(OSError, match="too large") as refused:
        write_all()
    assert refused.value.errno == errno.EFBIG
    write_all()
    assert all((np.load(tmp_path / name) == rows[name]).all() for name in rows)


def test_a_file_of_somebody_else_is_kept(tmp_path):
    (tmp_path / "movie.partial").write_bytes(b"x")
    with pytest.raises(InputError, match=r"movie\.partial"):
        FolderWriter(tmp_path, "rows", NAMES)
