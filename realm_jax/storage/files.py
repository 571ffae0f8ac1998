"""The thin layer through which publishing touches files, and sealed JSON on top of it.

Everything that must survive a kill goes through these few functions, so a test that makes the n-th
call fail reaches every one of them. A sealed file is JSON with a checksum of its own content: a
torn or altered one is told from a sound one.
"""

import contextlib
import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from realm_jax.errors import DamageError, InputError
from realm_jax.storage.failpoints import failpoint

CHUNK = 1 << 22  # bytes hashed at a time
_ROWS = 65_536  # of an array converted at a time
SEAL = "checksum"
PARTIAL = ".partial"  # ending of a small file before it has its name


def is_local(path: epath.Path) -> bool:
    """False for an object store."""
    return "://" not in os.fspath(path)


def _on_store(path: epath.Path) -> tuple[Any, str]:
    """fsspec's file system of an object store, and what it calls the path."""
    import fsspec

    return fsspec.core.url_to_fs(os.fspath(path))


def write_bytes(path: epath.Path, data: bytes) -> None:
    """Writes a small file durably. An object store replaces it whole.

    Locally the file is renamed into place, so that a reader seldom meets a torn one; where rename
    is not atomic, the seal still tells.
    """
    if not is_local(path):
        failpoint("file.put")
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of its own for each writer: two builders may move one pointer at the same moment.
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{PARTIAL}")
    failpoint("file.open")
    with partial.open("wb") as file:
        failpoint("file.write", half=lambda: file.write(data[: len(data) // 2]))
        file.write(data)
        file.flush()
        failpoint("file.flush")
        os.fsync(file.fileno())
    failpoint("file.rename")
    partial.replace(path)
    sync_folder(path.parent)


def create(path: epath.Path, data: bytes) -> bool:
    """Writes a small file only if there is none of that name: of several writers one is told True.

    Object stores do it by a conditional put.
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
            store, inside = _on_store(path)
            store.pipe_file(inside, data, mode="create")
    except (FileExistsError, FileNotFoundError):  # the second: the folder was deleted meanwhile
        return False
    return True


def check_writable(folder: epath.Path) -> None:
    """Refuses an object store that cannot be written, before any work is done for it.

    Raises:
      InputError: says whether the bucket or the permission is missing.
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
            "no permission to write there" if denied else "the bucket cannot be written",
            where=folder,
            expected="a bucket that this machine may read, write, list and delete in",
            found=f"{type(error).__name__}: {error}",
            fix="grant its account s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket "
            "(gs: roles/storage.objectAdmin), or log in as one that has them"
            if denied
            else "make the bucket first, and look at its name and region",
        ) from error


def _check_bucket(folder: epath.Path) -> None:
    """Raises FileNotFoundError where there is no such bucket: some libraries would make it."""
    store, inside = _on_store(folder)
    bucket = inside.split("/")[0]
    if not store.exists(bucket):
        store.ls(bucket, refresh=True)  # says it if this account may not know
        raise FileNotFoundError(errno.ENOENT, "no such bucket", bucket)


def write_array(path: epath.Path, array: np.ndarray, dtype: Any = None) -> None:
    """Writes a `.npy` file into an existing folder; `digest(sync=True)` makes it durable.

    Args:
      path: of the file.
      array: may be memory-mapped; rows are converted and written in blocks.
      dtype: of the file; None: that of `array`.
    """
    failpoint("file.open")
    with path.open("wb") as file:
        failpoint("file.write", half=lambda: _save_rows(file, array[: len(array) // 2], dtype))
        _save_rows(file, array, dtype)
        failpoint("file.flush")


def _save_rows(file: Any, array: np.ndarray, dtype: Any) -> None:
    """Writes the bytes of `np.save(file, array.astype(dtype))` without a converted copy of it."""
    if dtype is None or dtype == array.dtype:
        np.save(file, array)
        return
    header = np.lib.format.header_data_from_array_1_0(array[:0].astype(dtype))
    np.lib.format.write_array_header_1_0(file, {**header, "shape": array.shape})
    for start in range(0, len(array), _ROWS):
        file.write(array[start : start + _ROWS].astype(dtype).tobytes())


@contextlib.contextmanager
def library_write(folder: epath.Path) -> Iterator[None]:
    """Around a library that writes into `folder` by itself: it may fail before, or with it done."""
    failpoint("file.open", half=lambda: folder.mkdir(parents=True, exist_ok=True))
    yield
    failpoint("file.write")


def read_bytes(path: epath.Path) -> bytes | None:
    """The bytes of a small file; None if there is no such file.

    An object comes in one request: opened and read, it could be replaced in between.
    """
    try:
        if is_local(path):
            return path.read_bytes()
        store, inside = _on_store(path)
        return store.cat_file(inside)
    except (FileNotFoundError, NotADirectoryError):
        return None


def delete_file(path: epath.Path) -> None:
    """Deletes a file that may already be gone."""
    failpoint("file.delete")
    path.unlink(missing_ok=True)
    if is_local(path):
        with contextlib.suppress(FileNotFoundError):
            sync_folder(path.parent)


def delete_tree(folder: epath.Path) -> None:
    """Deletes a folder and all in it; it may already be gone."""
    while folder.exists():
        failpoint("file.delete")
        try:
            folder.rmtree()
        except OSError as error:  # another process deletes it too, or has just put a claim there
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def list_names(folder: epath.Path) -> list[str]:
    """Sorted names directly in a folder; none if it is no folder."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_files(folder: epath.Path, prefix: str = "") -> list[str]:
    """Sorted names, relative to `folder`, of all files under it."""
    found: list[str] = []
    for name in list_names(folder):
        path = folder / name
        inside = path.is_dir()
        found += list_files(path, f"{prefix}{name}/") if inside else [prefix + name]
    return found


def digest(path: epath.Path, *, sync: bool = False) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file; with `sync`, the data is made durable first."""
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


def seal(content: dict[str, Any]) -> bytes:
    """JSON bytes of `content` with a checksum of it."""
    return json.dumps({**content, SEAL: checksum(content)}, indent=1, sort_keys=True).encode()


def unseal(data: bytes, where: object) -> dict[str, Any]:
    """The content that `seal` closed.

    Raises:
      DamageError: the bytes are torn or altered.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamageError(
            "file is torn", where=where, expected="sealed JSON", found=f"{len(data)} bytes: {error}"
        ) from error
    promised = content.pop(SEAL, None) if isinstance(content, dict) else None
    if promised is None or promised != checksum(content):
        raise DamageError(
            "file was altered",
            where=where,
            expected=f"{SEAL} {promised}",
            found=checksum(content),
        )
    return content


def write_sealed(path: epath.Path, content: dict[str, Any]) -> None:
    """Writes sealed JSON durably."""
    write_bytes(path, seal(content))


def read_sealed(path: epath.Path, **shape: Any) -> dict[str, Any] | None:
    """The content of a sealed file; None if there is none.

    Args:
      path: of the file.
      shape: fields it must have, and the types of their values: a seal shows that a file is as it
        was written, not that we wrote it.

    Raises:
      DamageError: it is torn or altered, or lacks a field.
    """
    data = read_bytes(path)
    if data is None:
        return None
    content = unseal(data, path)
    for name, kind in shape.items():
        if name not in content or not isinstance(content[name], kind):
            raise DamageError(
                "file is not one of ours",
                where=path,
                expected=f"a field {name} of type {kind}",
                found=repr(content.get(name)),
            )
    return content


def append_line(path: epath.Path, content: dict[str, Any]) -> None:
    """Adds a line of JSON to a short log; one that was cut short before it stays a line alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = read_bytes(path) or b"\n"
    line = (b"" if before.endswith(b"\n") else b"\n") + json.dumps(content).encode() + b"\n"
    with path.open("ab") as file:
        failpoint("file.write", half=lambda: file.write(line[: len(line) // 2]))
        file.write(line)


def checksum(content: Any) -> str:
    """SHA-256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
