"""Opens safetensors files and checks that they are complete."""

from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from realm_jax.errors import DamageError, InputError
from realm_jax.interop.lazy import LazyArray

# Not floats of 8 bits or fewer: numpy has no such dtypes, and their scales are in other arrays.
_DTYPES = {"BOOL", "F64", "F32", "F16", "BF16"}
_DTYPES |= {f"{kind}{bits}" for kind in "IU" for bits in (8, 16, 32, 64)}


def open_safetensors(path: Path) -> Any:
    """Opens the file without reading an array.

    Raises:
      DamageError: the file does not exist, its header is invalid, or its size does not match.
    """
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise DamageError(
            "damaged weights", where=path, expected="a complete safetensors file", found=error
        ) from error


def read_safetensors(path: Path) -> dict[str, LazyArray]:
    """All arrays of the file by name, read on demand.

    Raises:
      DamageError: see `open_safetensors`.
      InputError: an array has a dtype that is not supported, such as F8_E4M3.
    """
    file = open_safetensors(path)
    found = {}
    for name in file.keys():  # noqa: SIM118 - the file is not a dict
        array = file.get_slice(name)
        if array.get_dtype() not in _DTYPES:
            raise InputError(
                "the weights have a dtype that is not supported",
                where=path,
                expected="float32, float16 or bfloat16",
                found=f"{name} of {array.get_dtype()}",
                fix="use the weights from before the quantisation, or save them in bfloat16",
            )
        found[name] = LazyArray(tuple(array.get_shape()), partial(file.get_tensor, name))
    return found
