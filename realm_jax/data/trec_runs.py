"""TREC run files: the documents that a system retrieved for each query, with scores.

One line per document: query id, `Q0`, document id, rank, score, name of the system. TREC's tools
sort by score, and ignore the rank. Blanks separate the cells; `id_of_run` encodes those of ids.
"""

import errno
import re
from pathlib import Path
from urllib.parse import quote

from etils import epath

from realm_jax.errors import InputError
from realm_jax.storage import files

TrecRun = dict[str, dict[str, float]]  # by query id: scores by document id


def id_of_run(identifier: str) -> str:
    """An id as a run file has it: `my notes.txt` is `my%20notes.txt`."""
    return re.sub(r"\s", lambda blank: quote(blank[0]), identifier)


def check_run_file(path: epath.Path) -> None:
    """Checks that a run file can be written, before the search whose result it holds.

    Raises:
      InputError: it cannot.
    """
    probe = path.with_name(f"{path.name}.writable")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        files.write_bytes(probe, b"")
        files.delete_file(probe)
    except OSError as error:
        raise InputError(
            "the run file cannot be written",
            where=path,
            expected="the path of a file, in a folder with write permission",
            found=error.strerror or error,
            fix="give the path of another file: --run-file=FILE",
        ) from error


def write_run(path: epath.Path, run: TrecRun, system: str) -> None:
    """Writes a run file; an existing one is replaced. `id_of_run` tells how it has the ids."""
    lines = []
    for query, scores in run.items():
        order = sorted(scores.items(), key=lambda scored: -scored[1])
        for rank, (document, score) in enumerate(order, 1):
            ids = f"{id_of_run(query)} Q0 {id_of_run(document)}"
            lines.append(f"{ids} {rank} {score:.9g} {system}\n")
    files.write_bytes(path, "".join(lines).encode())


def read_run(path: str | Path) -> TrecRun:
    """Reads a run file of any system; `.gz` is decompressed.

    Raises:
      InputError: there is no such file, or it is not a run file.
    """
    import ir_measures

    run: TrecRun = {}
    try:
        for scored in ir_measures.read_trec_run(str(path)):
            query = scored.query_id.removeprefix("\ufeff")  # a byte order mark
            run.setdefault(query, {})[scored.doc_id] = scored.score
    except (OSError, ValueError, EOFError) as error:
        raise _refused(path, error) from error
    if not run:
        raise _refused(path, "no line")
    return run


def _refused(path: str | Path, found: object) -> InputError:
    return InputError(
        "not a TREC run file",
        where=path,
        expected="lines of: query id, Q0, document id, rank, score, system",
        found=found,
    )
