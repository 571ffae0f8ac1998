"""The encoder that records start from: those of two encoders are not seeds of one system."""

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.errors import MismatchError
from realm_jax.interop.warm_start import weights_folder
from realm_jax.interop.weights import open_weights

# Of records without the field `start`, which are older than it.
MINILM = {"name": "all-MiniLM-L6-v2", "digest": "885fb43ff7e5b933"}

Record = dict[str, Any]


@functools.cache
def start_of(encoder: str) -> dict[str, str]:
    """The field `start` of a record: `name` and `digest` of an encoder.

    The digest is that of the arrays by name, so it does not depend on the format of their files.

    Args:
      encoder: folder or ORG/NAME.

    Raises:
      InputError, DamageError, MismatchError: the weights are not readable.
    """
    found = hashlib.sha256()
    for network, arrays in sorted(open_weights(weights_folder(encoder)).networks.items()):
        for name, array in sorted(arrays.items()):
            found.update(f"{network} {name} {array.shape}\n".encode())
            found.update(np.ascontiguousarray(array, "<f4").tobytes())
    return {"name": Path(encoder).name, "digest": found.hexdigest()[:16]}


def read_of_one_start(paths: Iterable[Path], run: Record | None = None) -> list[Record]:
    """The records in these files.

    Args:
      paths: of the records.
      run: `start` of a record to write, and `tagger` in those of table2.py; None: of none.

    Raises:
      MismatchError: they start from two encoders, or from another than `run`; or the pre-training
        corpus was marked by two taggers. Records that do not state the tagger fit all.
    """
    records, tagger = [], run.get("tagger") if run else None
    start = run["start"] if run else None
    for path in paths:
        record = json.loads(path.read_text())
        own, marked = record.get("start", MINILM), record.get("tagger")
        start, tagger = start or own, marked if tagger is None else tagger
        if own["digest"] != start["digest"]:
            _refuse("start from another encoder", path, _shown(start), _shown(own))
        if marked not in (None, tagger):
            _refuse("are of another tagger", path, repr(tagger), repr(marked))
        records.append(record)
    return records


def _shown(start: dict[str, str]) -> str:
    return f"{start['name']} (digest {start['digest']})"


def _refuse(problem: str, path: Path, expected: str, found: str) -> None:
    raise MismatchError(
        f"records in this folder {problem}",
        where=path,
        expected=expected,
        found=found,
        fix="keep records of another encoder or tagger apart, with another --home and another "
        "--label (evidence.py) or --records=FOLDER (table2.py)",
    )
