"""Local copies of files on an object store, for libraries and processes that need local files."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from etils import epath

from realm_jax.storage import files
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.logs import add_part


@contextlib.contextmanager
def local_to_write(
    folder: epath.Path, still_allowed: Callable[[], None] = lambda: None
) -> Iterator[epath.Path]:
    """A local folder, not yet created, whose files are copied to `folder` after the block.

    Args:
      folder: itself yielded if it is local.
      still_allowed: called before each upload; may raise an error.
    """
    if files.is_local(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as staged:
        local = epath.Path(staged) / folder.name
        yield local
        store, inside = files.on_store(folder)
        for name in files.list_files(local):
            still_allowed()
            failpoint("file.put")
            store.put_file(str(local / name), f"{inside}/{name}")


@contextlib.contextmanager
def local_to_read(path: epath.Path) -> Iterator[epath.Path]:
    """A local copy of a file or folder; files that were memory-mapped stay readable afterwards.

    Files that another process deletes meanwhile may be missing in the copy.
    """
    if files.is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as staged:
        local, (store, inside) = Path(staged) / path.name, files.on_store(path)
        for name in files.list_files(path) or [""]:  # a file has no files under it
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
