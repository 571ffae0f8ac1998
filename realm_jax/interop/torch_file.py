"""Reads the tensors of a `pytorch_model.bin` without torch, and without running what is in it.

Since torch 1.6 such a file is a zip of raw storages and one pickle that says which tensor is which
part of which storage. A pickle can name any function to call; the one that reads it here knows a
table of names that make tensors, and refuses every other.
"""

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes numpy know the name bfloat16
import numpy as np

from realm_jax.errors import DamageError, InputError
from realm_jax.interop.lazy import Lazy
from realm_jax.interop.pickles import BROKEN, Allowed

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


def read_torch(path: Path) -> dict[str, Lazy]:
    """Tensor name to array of a state dict.

    Raises:
      InputError: a file of torch before 1.6, a pickle that names anything but tensors, or one that
        is no dict of tensors.
      DamageError: a damaged archive.
    """
    if not zipfile.is_zipfile(path):
        raise InputError(
            "not a torch file that can be read without running code",
            where=path,
            expected="a zip, as torch writes since 1.6",
            found=f"{path.stat().st_size} bytes that are no zip, or one cut short",
            fix="save it anew as model.safetensors: save_pretrained(..., safe_serialization=True)",
        )
    with zipfile.ZipFile(path) as archive:
        [index] = [name for name in archive.namelist() if name.endswith("/data.pkl")] or [""]
        if not index:
            raise DamageError("no tensors in the torch file", where=path, expected="data.pkl")
        with archive.open(index) as content:
            try:
                found = _TensorsOnly(content, path, index.removesuffix("/data.pkl")).load()
            except BROKEN as error:
                raise DamageError("damaged torch file", where=path, found=str(error)) from error
    if not isinstance(found, dict) or not all(isinstance(x, Lazy) for x in found.values()):
        raise InputError("not a state dict", where=path, expected="tensor names to tensors")
    return dict(found)


class _TensorsOnly(pickle.Unpickler):
    def __init__(self, content: Any, path: Path, root: str):
        super().__init__(content)
        self._path, self._root = path, root

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): Allowed(self._tensor),
            ("torch._utils", "_rebuild_parameter"): Allowed(lambda data, *_: data),
        }
        if (module, name) in known:
            return known[module, name]
        raise InputError(
            "the pickle names something that is no tensor; nothing of it was run",
            where=self._path,
            found=f"{module}.{name}",
            fix="save it anew as model.safetensors, where you trust it",
        )

    def persistent_load(self, pid: Any) -> tuple[str, str, int]:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not str(key).isalnum():
            raise pickle.UnpicklingError(f"expected a storage, found {kind!r} {key!r}")
        return dtype, str(key), int(count)

    def _tensor(
        self, storage: tuple[str, str, int], offset: int, shape: Any, strides: Any, *_: Any
    ) -> Lazy:
        dtype, key, count = storage
        steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        inside = min([offset, *steps]) >= 0 and offset + sum(steps) < count
        if min([0, *shape]) < 0 or (all(shape) and not inside):
            raise pickle.UnpicklingError("a tensor that is not inside its storage")

        def read() -> np.ndarray:
            if not all(shape):
                return np.zeros(shape, dtype)
            flat = np.frombuffer(self._storage(key, count * np.dtype(dtype).itemsize), dtype)
            in_bytes = [stride * flat.itemsize for stride in strides]
            return np.lib.stride_tricks.as_strided(flat[offset:], shape, in_bytes, writeable=False)

        return Lazy(tuple(shape), read)

    def _storage(self, key: str, size: int) -> bytes:
        name = f"{self._root}/data/{key}"
        with zipfile.ZipFile(self._path) as archive:
            try:
                held = archive.getinfo(name).file_size
                if held == size:
                    return archive.read(name)
            except (KeyError, zipfile.BadZipFile) as error:
                raise DamageError("damaged torch file", where=self._path, found=error) from error
        raise DamageError(
            "damaged torch file",
            where=f"{self._path}, {name}",
            expected=f"{size} bytes",
            found=f"{held} bytes",
        )
