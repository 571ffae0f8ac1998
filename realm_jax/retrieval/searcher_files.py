"""Files of saved searchers: `searcher.json`, which describes each, and arrays."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.errors import DamageError, MismatchError

DESCRIPTION = "searcher.json"
SEGMENTED = "segmented"  # kind of a searcher whose segments are searchers of other kinds
FORMAT = 1


def saved_kinds(folder: Path) -> set[str]:
    """The kind of a saved searcher; of a segmented one, the kinds of its segments.

    Raises:
      DamageError: the description of the searcher is damaged.
    """
    description = read_description(folder)
    if description["kind"] != SEGMENTED:
        return {description["kind"]}
    return {kind for kind, _ in segments_in(description, folder)}


def segments_in(description: dict[str, Any], folder: Path) -> list[tuple[str, int]]:
    """Kind and number of rows of each segment, from the description of a segmented searcher.

    Raises:
      DamageError: it has none.
    """
    segments = description.get("segments")
    try:
        found = [(str(one["kind"]), int(one["size"])) for one in segments or ()]
    except (TypeError, KeyError, ValueError):
        found = []
    if not found:
        raise DamageError(
            "the description of the searcher has no segments",
            where=folder / DESCRIPTION,
            expected="segments: kind and size of at least one",
            found=segments,
        )
    return found


def write_description(folder: Path, searcher: Any, **more: Any) -> None:
    """Writes `searcher.json`: format version, kind, size, dims and `more`."""
    description = {
        "format": FORMAT,
        "kind": searcher.kind,
        "size": searcher.size,
        "dims": searcher.dims,
        **more,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1))


def read_description(folder: Path) -> dict[str, Any]:
    """Reads `searcher.json`.

    Raises:
      DamageError: missing or not readable.
      MismatchError: another format version.
    """
    path = folder / DESCRIPTION
    try:
        description = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DamageError(
            "the description of the searcher cannot be read",
            where=path,
            expected="JSON",
            found=str(error),
        ) from error
    needed = {"format", "kind", "size", "dims"}
    if not isinstance(description, dict) or not needed <= description.keys():
        raise DamageError(
            "the description of the searcher is incomplete",
            where=path,
            expected=sorted(needed),
            found=description,
        )
    if description["format"] != FORMAT:
        raise MismatchError(
            "the searcher has another format version",
            where=path,
            expected=FORMAT,
            found=description["format"],
            fix="build the index again with this version",
        )
    return description


def read_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Memory-maps a float32 array that `np.save` wrote.

    Raises:
      DamageError: it is missing or truncated, or has another shape or dtype.
    """
    expected = f"float32 {list(shape)}"
    try:
        array: np.ndarray = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DamageError(
            "the array cannot be read", where=path, expected=expected, found=str(error)
        ) from error
    if array.shape != shape or array.dtype != np.float32:
        raise DamageError(
            "the array does not match its description",
            where=path,
            expected=expected,
            found=f"{array.dtype} {list(array.shape)}",
        )
    return array
