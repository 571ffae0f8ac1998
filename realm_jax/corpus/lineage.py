"""`corpus_hash` of every generation of a corpus.

A manifest has those of the last generations. Earlier ones are in files of 128: file n of the folder
`lineage` has the generations 128 n + 1 to 128 (n + 1), and is written with the generation after
them. Its content never changes, so it does not matter which process writes it, or how often.
"""

from collections.abc import Sequence
from typing import Any

from etils import epath

from realm_jax.errors import DamageError
from realm_jax.storage import sealed
from realm_jax.storage.layout import GENERATIONS, step_name

OF_FILE = 128  # generations
FIELD = "recent"  # of the manifest of a generation


def write_lineage(corpus: epath.PathLike, lineage: Sequence[str]) -> dict[str, Any]:
    """Writes the files that do not exist yet.

    Args:
      corpus: its folder.
      lineage: `corpus_hash` of the generations from the first to the one that is written.

    Returns:
      A field for the manifest of this generation.
    """
    count = (len(lineage) - 1) // OF_FILE
    for number in range(count):
        path = _path(corpus, number)
        if not path.exists():
            hashes = lineage[number * OF_FILE : (number + 1) * OF_FILE]
            sealed.write(path, {"hashes": list(hashes)})
    return {FIELD: list(lineage[count * OF_FILE :])}


def read_lineage(
    corpus: epath.PathLike, generation: int, manifest: dict[str, Any]
) -> tuple[str, ...]:
    """`corpus_hash` of the generations 1 to `generation`, whose manifest is given.

    Raises:
      DamageError: a file is damaged or missing.
    """
    lineage: list[str] = []
    for number in range((generation - len(manifest[FIELD])) // OF_FILE):
        path = _path(corpus, number)
        content = sealed.read(path, hashes=list)
        if content is None:
            raise DamageError(
                "a file of the corpus is missing",
                where=path,
                expected=f"corpus_hash of {OF_FILE} generations",
                found="no file",
                fix="copy the folder of the corpus again, with all its files",
            )
        lineage += content["hashes"]
    return (*lineage, *manifest[FIELD])


def lineage_problems(
    corpus: epath.PathLike, generation: int, manifest: dict[str, Any]
) -> list[dict[str, Any]]:
    """The first file that `read_lineage` refuses, as `integrity.verify` returns it."""
    try:
        read_lineage(corpus, generation, manifest)
    except DamageError as error:
        name = str(epath.Path(error.where).relative_to(corpus))
        return [{"file": name, "expected": error.expected, "found": error.found}]
    return []


def _path(corpus: epath.PathLike, number: int) -> epath.Path:
    return epath.Path(corpus) / GENERATIONS / "lineage" / f"{step_name(number)}.json"
