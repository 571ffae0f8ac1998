"""File operations on local disks and object stores.

All durable files are written through these functions, each of which has a failpoint, so a test can
make the n-th file operation fail.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from realm_jax.errors import InputError
from realm_jax.storage.failpoints import failpoint

CHUNK = 1 << 22  # bytes hashed at a time
_ROWS = 65_536  # of an array converted at a time
PARTIAL = ".partial"  # suffix of a small file until it is renamed
# An NFS client renames a deleted file that a process of this machine has open or memory-mapped to
# a name with this prefix, in the same folder, and deletes it when it is closed.
_OPEN_ON_NFS = ".nfs"
# errno of a folder that this process may not write, and of a disk without space
NOT_WRITABLE, FULL = {errno.EACCES, errno.EPERM, errno.EROFS}, {errno.ENOSPC, errno.EDQUOT}


def is_local(path: epath.Path) -> bool:
    """Whether a path is on a local file system, not on an object store."""
    return "://" not in os.fspath(path)


def on_store(path: epath.Path) -> tuple[Any, str]:
    """The fsspec file system of an object store, and the path within it."""
    import fsspec

    return fsspec.core.url_to_fs(os.fspath(path))


def write_bytes(path: epath.Path, data: bytes) -> None:
    """Writes a small file durably; an existing one is replaced.

    A local file is written under another name and renamed, so that readers do not see a part of
    it. If rename is not atomic, the checksum of a sealed file still detects a part. An error names
    the file, and leaves no part of it.
    """
    if not is_local(path):
        failpoint("file.put")
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Each thread uses another name: two builders may move one pointer at the same time.
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{PARTIAL}")
    try:
        _write_and_rename(partial, path, data)
    except OSError as error:
        error.filename = os.fspath(path)  # errors of a full disk name no file
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _write_and_rename(partial: epath.Path, path: epath.Path, data: bytes) -> None:
    failpoint("file.open")
    with partial.open("wb") as file:
        failpoint("file.write", half=lambda: file.write(data[: len(data) // 2]))
        file.write(data)
        file.flush()
        failpoint("file.flush")
        os.fsync(file.fileno())
    failpoint("file.rename")
    partial.replace(path)


def create(path: epath.Path, data: bytes) -> bool:
    """Creates a small file; returns False if it already exists.

    If several processes try, exactly one gets True. Object stores use a conditional put.
    """
    try:
        if is_local(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            failpoint("file.open")
            with Path(path).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        else:
            failpoint("file.put")
            store, inside = on_store(path)
            store.pipe_file(inside, data, mode="create")
    except (FileExistsError, FileNotFoundError):  # the latter: the folder has just been deleted
        return False
    return True


def check_writable(folder: epath.Path) -> None:
    """Checks that an object store can be written, before hours of work depend on it.

    Raises:
      InputError: the bucket does not exist, or a permission is missing.
    """
    if is_local(folder):
        return
    probe = folder / ".writable"
    try:
        _check_bucket(folder)
        write_bytes(probe, b"")
        delete_file(probe)
    except OSError as error:
        denied = isinstance(error, PermissionError)
        raise InputError(
            "no permission to write to the bucket" if denied else "the bucket cannot be written",
            where=folder,
            expected="a bucket in which this machine may read, write, list and delete",
            found=f"{type(error).__name__}: {error}",
            fix="grant the account s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket "
            "(gs: roles/storage.objectAdmin), or log in with an account that has them"
            if denied
            else "create the bucket first, and check its name and region",
        ) from error


def _check_bucket(folder: epath.Path) -> None:
    """Raises FileNotFoundError if the bucket does not exist; some libraries would create it."""
    store, inside = on_store(folder)
    bucket = inside.split("/")[0]
    if not store.exists(bucket):
        store.ls(bucket, refresh=True)  # raises PermissionError if this account may not list it
        raise FileNotFoundError(errno.ENOENT, "no such bucket", bucket)


def write_array(path: epath.Path, array: Any, dtype: Any = None) -> None:
    """Writes a `.npy` file into an existing folder; `digest(sync=True)` makes it durable.

    Args:
      path: of the file.
      array: a NumPy array, which may be memory-mapped, or what has `shape`, `dtype` and slices of
        rows like one; rows are converted and written in blocks.
      dtype: of the file; None: that of `array`.
    """
    failpoint("file.open")
    with path.open("wb") as file:
        failpoint("file.write", half=lambda: _save_rows(file, array[: len(array) // 2], dtype))
        _save_rows(file, array, dtype)
        failpoint("file.flush")


def _save_rows(file: Any, array: Any, dtype: Any) -> None:
    """Writes the bytes of `np.save(file, array.astype(dtype))` without a converted copy of it."""
    if isinstance(array, np.ndarray) and (dtype is None or dtype == array.dtype):
        np.save(file, array)
        return
    dtype = array.dtype if dtype is None else dtype
    header = np.lib.format.header_data_from_array_1_0(array[:0].astype(dtype))
    np.lib.format.write_array_header_1_0(file, {**header, "shape": array.shape})
    for start in range(0, len(array), _ROWS):
        file.write(array[start : start + _ROWS].astype(dtype).tobytes())


@contextlib.contextmanager
def external_write(folder: epath.Path) -> Iterator[None]:
    """Failpoints around a library (Orbax, ScaNN) that writes into `folder` with its own code."""
    failpoint("file.open", half=lambda: folder.mkdir(parents=True, exist_ok=True))
    yield
    failpoint("file.write")


def read_bytes(path: epath.Path, most: int | None = None) -> bytes | None:
    """Reads a small file, or its first `most` bytes; None if it does not exist.

    One call reads an object, which could be replaced meanwhile; with `most`, s3fs skips its size.
    """
    try:
        if is_local(path):
            return path.read_bytes()[:most]
        store, inside = on_store(path)
        content: bytes = store.cat_file(inside, start=None if most is None else 0, end=most)
        return content
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_object(path: epath.Path) -> dict[str, Any]:
    """Reads a JSON object; {} if there is no file, or if it is incomplete or not an object."""
    try:
        content = json.loads(read_bytes(path) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def delete_file(path: epath.Path) -> None:
    """Deletes a file; does nothing if it does not exist."""
    failpoint("file.delete")
    path.unlink(missing_ok=True)
    if is_local(path):
        with contextlib.suppress(FileNotFoundError):
            sync_folder(path.parent)


def delete_tree(folder: epath.Path) -> None:
    """Deletes a folder with its content; does nothing if it does not exist.

    On NFS, deleted files that a process of this machine has open or memory-mapped stay until they
    are closed, under other names that `list_files` and `sizes` omit.
    """
    while folder.exists():
        failpoint("file.delete")
        if not is_local(folder):
            with contextlib.suppress(FileNotFoundError):  # another process deletes it too
                folder.rmtree()  # s3fs raises that error without an errno
            continue
        try:
            shutil.rmtree(Path(folder), onerror=_raise_unless_expected)
        except NotADirectoryError:
            Path(folder).unlink(missing_ok=True)
        if _has_only_open_files(Path(folder)):
            return


def _raise_unless_expected(_: Any, path: str | Path, raised: tuple[Any, Any, Any]) -> None:
    """Lets `shutil.rmtree` go on if another process deletes or writes too, or a file is open."""
    error = raised[1]
    is_open = error.errno == errno.EBUSY and Path(path).name.startswith(_OPEN_ON_NFS)
    if not is_open and error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
        raise error


def _has_only_open_files(folder: Path) -> bool:
    """Whether a folder holds files, all of which an NFS client deletes when they are closed."""
    names = [name for _, _, inside in os.walk(folder) for name in inside]
    return bool(names) and all(name.startswith(_OPEN_ON_NFS) for name in names)


def list_names(folder: epath.Path) -> list[str]:
    """Sorted names directly in a folder; empty if there is no such folder."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_files(folder: epath.Path) -> list[str]:
    """Sorted names, relative to `folder`, of all files under it."""
    return sorted(sizes(folder))


def sizes(folder: epath.Path) -> dict[str, int]:
    """Name, relative to `folder`, -> bytes of all files under it; one listing on an object store.

    Files that are deleted meanwhile may be missing. Deleted files that NFS keeps are omitted.
    """
    if is_local(folder):
        return dict(_local_sizes(Path(folder), ""))
    store, inside = on_store(folder)
    start = f"{inside.rstrip('/')}/"
    found = store.find(inside, detail=True)
    names = {path.removeprefix(start): int(one["size"]) for path, one in found.items()}
    return {name: size for name, size in names.items() if not name.endswith("/") and name != inside}


def _local_sizes(folder: Path, prefix: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir():
            yield from _local_sizes(Path(entry.path), f"{prefix}{entry.name}/")
            continue
        if entry.name.startswith(_OPEN_ON_NFS):
            continue
        with contextlib.suppress(FileNotFoundError):
            yield prefix + entry.name, entry.stat().st_size


def digest(path: epath.Path, *, sync: bool = False) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file; `sync` makes its data durable first."""
    if sync and is_local(path):
        failpoint("file.flush")
        _sync(path)
    sha, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": sha.hexdigest()}


def sync_folder(folder: epath.Path) -> None:
    """Makes the names in a local folder durable; does nothing on an object store."""
    if is_local(folder):
        failpoint("file.flush")
        _sync(folder)


def _sync(path: epath.Path) -> None:
    descriptor = os.open(os.fspath(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some mounts cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def append_line(path: epath.Path, content: dict[str, Any], *, sync: bool = False) -> None:
    """Adds a line of JSON to a local log; ends an incomplete last line with a newline first.

    `sync`: the line survives a loss of power.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("ab+") as file:
        line = json.dumps(content).encode() + b"\n"
        is_new = file.tell() == 0
        if not is_new:
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        failpoint("file.write", half=lambda: file.write(line[: len(line) // 2]))
        file.write(line)
        if sync:
            failpoint("file.flush")
            file.flush()
            os.fsync(file.fileno())
    if sync and is_new:
        _sync(path.parent)
