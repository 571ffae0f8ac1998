"""Opens safetensors files and checks that they are complete."""

from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from realm_jax.errors import DamageError
from realm_jax.interop.lazy import LazyArray


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
    """
    file = open_safetensors(path)
    return {
        name: LazyArray(tuple(file.get_slice(name).get_shape()), partial(file.get_tensor, name))
        for name in file.keys()  # noqa: SIM118 - the file is not a dict
    }
