"""Are weights for others whole? Their files keep no checksums, but sizes and parts that fit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm_jax.errors import DamageError, RealmError
from realm_jax.interop.safetensors_file import open_safetensors
from realm_jax.interop.weights import NETWORK_FOLDERS, open_weights

_FILES = ("*.safetensors", "pytorch_model*.bin")


def holds_weights(folder: Path) -> bool:
    """Whether weights lie in the folder, or in one of a network of it; sound or not."""
    places = [folder, *(folder / name for name in NETWORK_FOLDERS)]
    return any(any(place.glob(pattern)) for place in places for pattern in _FILES)


def problems(folder: Path) -> Iterator[dict[str, Any]]:
    """What keeps the weights from being read, as `exchange.check` says it."""
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
    return {"file": where, "expected": str(error.expected or "sound weights"), "found": found}
