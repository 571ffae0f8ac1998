"""TREC run files: the documents that a system retrieved for each query, with scores.

One line per document: query id, `Q0`, document id, rank, score, name of the system. TREC's tools
sort by score, and ignore the rank.
"""

from pathlib import Path

from etils import epath

from realm_jax.errors import InputError
from realm_jax.storage import files

TrecRun = dict[str, dict[str, float]]  # by query id: scores by document id


def write_run(path: epath.Path, run: TrecRun, system: str) -> None:
    """Writes a run file; an existing one is replaced.

    Raises:
      InputError: an id has a blank, which the format cannot hold.
    """
    lines = []
    for query, scores in run.items():
        order = sorted(scores.items(), key=lambda scored: -scored[1])
        for rank, (document, score) in enumerate(order, 1):
            cells = (query, "Q0", document, str(rank), f"{score:.9g}", system)
            if any(len(cell.split()) != 1 for cell in cells):
                raise InputError(
                    "an id cannot be written to a TREC run file",
                    where=path,
                    expected="ids without blanks",
                    found=f"query {query!r}, document {document!r}",
                    fix="build the corpus again with other ids",
                )
            lines.append(" ".join(cells) + "\n")
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
