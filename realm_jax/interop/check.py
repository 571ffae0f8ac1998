"""Checks exported weights: file sizes and array shapes, because the formats have no checksums."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm_jax.errors import DamageError, RealmError
from realm_jax.interop.safetensors_file import open_safetensors
from realm_jax.interop.weights import NETWORK_FOLDERS, open_weights

_FILES = ("*.safetensors", "pytorch_model*.bin")


def holds_weights(folder: Path) -> bool:
    """Whether the folder, or a network folder inside it, contains weights, damaged or not."""
    folders = [folder, *(folder / name for name in NETWORK_FOLDERS)]
    return any(any(found.glob(pattern)) for found in folders for pattern in _FILES)


def problems(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields problems of the weights, in the form of `artifacts.verify`."""
    damaged = False
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*/*.safetensors")]):
        try:
            open_safetensors(path)
        except DamageError as error:
            damaged = True
            yield _problem(folder, error)
    if damaged:
        return
    try:
        open_weights(folder)
    except RealmError as error:
        yield _problem(folder, error)


def _problem(folder: Path, error: RealmError) -> dict[str, Any]:
    where = str(error.where or folder).removeprefix(f"{folder}/")
    found = error.problem if error.found is None else str(error.found)
    return {"file": where, "expected": str(error.expected or "valid weights"), "found": found}
