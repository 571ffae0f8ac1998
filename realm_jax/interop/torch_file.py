"""Reads the tensors of a `pytorch_model.bin` without torch and without executing code in it.

Since torch 1.6 such a file is a zip of raw storages and one pickle, which maps tensors to parts of
storages. A pickle can call any function. This reader allows only the functions that build tensors
and rejects all others.
"""

import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers the dtype name bfloat16 in numpy
import numpy as np

from realm_jax.errors import DamageError, InputError
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.pickles import UNPICKLING_ERRORS, AllowedFunction

_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}

# RuntimeError: encrypted, or compressed in a way that zipfile does not know. OSError: an offset
# before the beginning of the file.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, OSError)


def read_torch(path: Path) -> dict[str, LazyArray]:
    """Arrays of a state dict by tensor name, read on demand.

    Raises:
      InputError: the file is older than torch 1.6, its pickle refers to anything but tensors, or
        it is not a dict of tensors.
      DamageError: the archive is damaged.
    """
    if not zipfile.is_zipfile(path):
        raise InputError(
            "the torch file cannot be read without executing code",
            where=path,
            expected="a zip file, as torch writes since 1.6",
            found=f"{path.stat().st_size} bytes that are not a zip file, or a truncated one",
            fix="save as model.safetensors: save_pretrained(..., safe_serialization=True)",
        )
    with _opened(path) as archive:
        indexes = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(indexes) != 1:
            count = f"{len(indexes)} files of that name"
            raise DamageError("damaged torch file", where=path, expected="data.pkl", found=count)
        with archive.open(indexes[0]) as content:
            found = _TensorsOnly(content, path, indexes[0].removesuffix("/data.pkl")).load()
    if not isinstance(found, dict) or not all(isinstance(x, LazyArray) for x in found.values()):
        raise InputError(
            "the torch file is not a state dict", where=path, expected="a dict of tensors"
        )
    return dict(found)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; an error of zipfile or pickle in the block becomes a DamageError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (*UNPICKLING_ERRORS, *_ZIP_ERRORS) as error:
        found = f"{type(error).__name__}: {error}"
        raise DamageError("damaged torch file", where=path, found=found) from error


class _TensorsOnly(pickle.Unpickler):
    def __init__(self, content: Any, path: Path, root: str):
        super().__init__(content)
        self._path, self._root = path, root

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): AllowedFunction(self._tensor),
            ("torch._utils", "_rebuild_parameter"): AllowedFunction(lambda data, *_: data),
        }
        if (module, name) in known:
            return known[module, name]
        raise InputError(
            "the pickle refers to something other than tensors; nothing of it was run",
            where=self._path,
            found=f"{module}.{name}",
            fix="if you trust the file, load it with torch and save it as model.safetensors",
        )

    def persistent_load(self, pid: Any) -> tuple[str, str, int]:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not str(key).isalnum():
            raise pickle.UnpicklingError(f"expected a storage, found {kind!r} {key!r}")
        return dtype, str(key), int(count)

    def _tensor(
        self, storage: tuple[str, str, int], offset: int, shape: Any, strides: Any, *_: Any
    ) -> LazyArray:
        dtype, key, count = storage
        steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        inside = min([offset, *steps]) >= 0 and offset + sum(steps) < count
        if min([0, *shape]) < 0 or (all(shape) and not inside):
            raise pickle.UnpicklingError("a tensor is not inside its storage")

        def read() -> np.ndarray:
            if not all(shape):
                return np.zeros(shape, dtype)
            flat = np.frombuffer(self._storage(key, count * np.dtype(dtype).itemsize), dtype)
            in_bytes = [stride * flat.itemsize for stride in strides]
            return np.lib.stride_tricks.as_strided(flat[offset:], shape, in_bytes, writeable=False)

        return LazyArray(tuple(shape), read)

    def _storage(self, key: str, size: int) -> bytes:
        name = f"{self._root}/data/{key}"
        with _opened(self._path) as archive:
            stored = archive.getinfo(name).file_size
            if stored == size:
                return archive.read(name)
        raise DamageError(
            "damaged torch file",
            where=f"{self._path}, {name}",
            expected=f"{size} bytes",
            found=f"{stored} bytes",
        )
