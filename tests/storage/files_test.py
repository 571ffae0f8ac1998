"""Small files that cannot be written."""

import errno

import pytest
from etils import epath

from realm_jax.storage import files
from realm_jax.storage.failpoints import armed


@pytest.mark.parametrize("point", ["file.open", "file.write", "file.flush", "file.rename"])
@pytest.mark.parametrize("action", ["full", "short"])
def test_a_write_that_fails_names_the_file_and_leaves_no_part(tmp_path, point, action):
    path = epath.Path(tmp_path) / "report.html"
    files.write_bytes(path, b"before")
    with armed(f"{point}={action}"), pytest.raises(OSError, match="No space left") as error:
        files.write_bytes(path, b"after")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"before"
    assert files.list_names(epath.Path(tmp_path)) == ["report.html"]
