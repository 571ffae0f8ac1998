"""A run works on a file system without `flock`, which a preloaded library emulates."""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from etils import epath

from realm_jax.artifacts.params import require_sharded_writes
from realm_jax.errors import InputError
from realm_jax.storage import flock
from realm_jax.storage.flock import exclusive_folder

SOURCE = Path(__file__).with_name("noflock.c")
JOB = """
import logging, sys, threading
import numpy as np
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.storage import files
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.locks import job_lock, still_allowed

logging.basicConfig()
run = RunDir(sys.argv[1])
with job_lock(run, "trainer", threading.Event()) as stop:
    publish_snapshot(run, 1, {"w": np.arange(9.0)}, "{}", {}, still_allowed(stop))
print(read_snapshot(run.snapshots / step_name(1)).params["w"].tolist())
print(files.list_files(run.snapshots / step_name(1)))
"""

EXCLUSIVE = """
import logging, sys
from pathlib import Path
from realm_jax.storage.flock import exclusive

logging.basicConfig()
with exclusive(Path(sys.argv[1]), "waiting", "run one at a time"):
    print("worked")
"""


@pytest.fixture(scope="module")
def no_flock(tmp_path_factory):
    """The library, compiled."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("library") / "noflock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def test_job_publishes_on_a_file_system_without_flock(no_flock, tmp_path):
    environment = {**os.environ, "LD_PRELOAD": str(no_flock), "NO_FLOCK": str(tmp_path)}
    command = [sys.executable, "-c", JOB, str(tmp_path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "No locks available; using a lock file that expires instead" in done.stderr
    values, names = done.stdout.splitlines()
    assert values == str([float(number) for number in range(9)])
    assert "MANIFEST.json" in names and "WRITER.json" not in names


def test_a_command_that_cannot_exclude_others_warns_and_works(no_flock, tmp_path):
    """Such as a change of a corpus, an index update or a BM25 index."""
    environment = {**os.environ, "LD_PRELOAD": str(no_flock), "NO_FLOCK": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", EXCLUSIVE, str(tmp_path / "file")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "worked\n"
    assert f"{tmp_path} has no file locks: run one at a time" in done.stderr


def test_a_folder_that_its_holder_deletes_is_created_and_locked_again(tmp_path, monkeypatch):
    folder, holder = tmp_path / "folder", contextlib.ExitStack()
    holder.enter_context(exclusive_folder(folder, "waiting", ""))
    monkeypatch.setattr(flock, "_QUIET_SECONDS", 0)

    def delete(*_):
        folder.rmdir()
        holder.close()

    monkeypatch.setattr(flock.log, "info", delete)  # called by the process that waits
    with exclusive_folder(folder, "waiting", ""):
        descriptor = os.open(folder, os.O_RDONLY)
        assert not flock.try_flock(descriptor, folder)
        os.close(descriptor)
    assert list(folder.iterdir()) == []


def test_nfs_which_locks_no_file_that_is_read_only_has_no_flock(tmp_path, monkeypatch, caplog):
    def refused(*_):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refused)
    with exclusive_folder(tmp_path / "folder", "waiting", "run one at a time"):
        assert f"{tmp_path / 'folder'} has no file locks: run one at a time" in caplog.text


@pytest.mark.slow
def test_several_processes_are_refused_where_they_could_not_write_checkpoints(
    tmp_path, monkeypatch
):
    def unsupported(*_):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    folder = epath.Path(tmp_path) / "checkpoints"
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    require_sharded_writes(folder)
    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(InputError, match="without flock"):
        require_sharded_writes(folder)
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    require_sharded_writes(folder)
