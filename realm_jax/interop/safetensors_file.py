"""A safetensors file, whole or refused: its header tells where it must end."""

from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from realm_jax.errors import DamageError
from realm_jax.interop.lazy import Lazy


def open_safetensors(path: Path) -> Any:
    """The file as safetensors opens it, no array read yet.

    Raises:
      DamageError: no such file, a header that cannot be, or more or fewer bytes than it tells.
    """
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise DamageError(
            "damaged weights", where=path, expected="a whole safetensors file", found=error
        ) from error


def read_safetensors(path: Path) -> dict[str, Lazy]:
    """All arrays of the file by name. DamageError: see `open_safetensors`."""
    file = open_safetensors(path)
    return {
        name: Lazy(tuple(file.get_slice(name).get_shape()), partial(file.get_tensor, name))
        for name in file.keys()  # noqa: SIM118 - the file is no dict
    }
