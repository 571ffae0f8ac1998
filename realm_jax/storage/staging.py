"""Local copies of files on an object store, for libraries and processes that need local files."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from realm_jax.storage import files
from realm_jax.storage.failpoints import failpoint


@contextlib.contextmanager
def local_to_write(folder: epath.Path) -> Iterator[epath.Path]:
    """A local folder, not yet created, whose files are copied to `folder` after the block."""
    if files.is_local(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as staged:
        local = epath.Path(staged) / folder.name
        yield local
        for name in files.list_files(local):
            failpoint("file.put")
            _copy(local / name, folder / name)


@contextlib.contextmanager
def local_to_read(path: epath.Path) -> Iterator[epath.Path]:
    """A local copy of a file or folder; files that were memory-mapped stay readable afterwards."""
    if files.is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as staged:
        local = epath.Path(staged) / path.name
        # An object store lists a file as its own only member.
        for name in files.list_files(path) if path.is_dir() else [""]:
            _copy(path / name if name else path, local / name if name else local)
        yield local


@contextlib.contextmanager
def local_to_append(path: epath.Path) -> Iterator[Path]:
    """A local copy of a file, to append to; copied back after the block, also after an error."""
    if files.is_local(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as staged:
        local = Path(staged) / path.name
        local.write_bytes(files.read_bytes(path) or b"")
        try:
            yield local
        finally:
            files.write_bytes(path, local.read_bytes())


def _copy(source: epath.Path, target: epath.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, files.CHUNK)
