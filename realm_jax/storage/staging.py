"""Local copies of files on an object store, for libraries and processes that need local files.

A file system without `flock` is written like an object store: Orbax locks the files that it writes.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from etils import epath

from realm_jax.storage import files
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.flock import has_flock
from realm_jax.storage.logs import add_part


@contextlib.contextmanager
def local_to_write(
    folder: epath.Path, still_allowed: Callable[[], None] = lambda: None
) -> Iterator[epath.Path]:
    """A local folder, not yet created, whose files are copied to `folder` after the block.

    Args:
      folder: itself yielded if it is local and its file system supports `flock`.
      still_allowed: called before each upload; may raise an error.
    """
    if writes_in_place(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as staged:
        local = epath.Path(staged) / folder.name
        yield local
        for name in files.list_files(local):
            still_allowed()
            failpoint("file.put")
            _put(Path(local / name), folder / name)


def writes_in_place(folder: epath.Path) -> bool:
    """Whether `local_to_write` yields the folder itself."""
    return files.is_local(folder) and has_flock(Path(folder))


def _put(local: Path, target: epath.Path) -> None:
    if not files.is_local(target):
        store, inside = files.on_store(target)
        store.put_file(str(local), inside)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with local.open("rb") as read, Path(target).open("wb") as written:
        shutil.copyfileobj(read, written, files.CHUNK)
        written.flush()
        os.fsync(written.fileno())
    files.sync_folder(target.parent)


@contextlib.contextmanager
def local_to_read(
    path: epath.Path, skip: Callable[[str], bool] = lambda name: False
) -> Iterator[epath.Path]:
    """A local copy of a file or folder; files that were memory-mapped stay readable afterwards.

    `skip` says of the name of a file in the folder whether it is not copied. Files that another
    process deletes meanwhile may be missing in the copy.
    """
    if files.is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as staged:
        local, (store, inside) = Path(staged) / path.name, files.on_store(path)
        for name in files.list_files(path) or [""]:  # a file has no files under it
            if skip(name):
                continue
            target = local / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                store.get_file(f"{inside}/{name}" if name else inside, str(target))
        yield epath.Path(local)


@contextlib.contextmanager
def local_to_append(path: epath.Path) -> Iterator[Path]:
    """A local file to append to.

    On an object store it is a new file, which becomes a part of the log `path` (`storage.logs`)
    after the block, also after an error.
    """
    if files.is_local(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as staged:
        local = Path(staged) / path.name
        local.touch()
        try:
            yield local
        finally:
            add_part(path, local.read_bytes())
