"""Judged sets in the form of BEIR: a folder with queries and relevance judgements.

| file | content |
|---|---|
| `queries.jsonl` | JSON lines `_id`, `text` |
| `qrels.tsv`, or `qrels/PART.tsv` | query id, document id, grade; a header is skipped |

A grade above 0 is relevant; negative grades count as 0. `corpus.jsonl` is for `realm corpus build`.
"""

import json
import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from realm_jax.errors import InputError
from realm_jax.text.surrogates import UNPAIRED_SURROGATE

QUERIES, QRELS = "queries.jsonl", "qrels"
Qrels = dict[str, dict[str, int]]
_BUILD = "realm corpus build --format=beir --input=FOLDER --out=CORPUS"
_GRADE = re.compile(r"-?[0-9]{1,9}")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JudgedSet:
    """Queries that have a relevant document, and their judgements.

    Attributes:
      name: of the folder.
      queries: texts by query id, in the order of the file.
      qrels: for each of these queries grades by document id; 0: not relevant.
    """

    name: str
    queries: dict[str, str]
    qrels: Qrels

    def first(self, count: int) -> "JudgedSet":
        """The set with its first `count` queries only."""
        kept = dict(list(self.queries.items())[:count])
        return JudgedSet(self.name, kept, {query: self.qrels[query] for query in kept})

    def check_documents(self, known: Collection[str]) -> None:
        """Checks that the judged documents exist.

        Args:
          known: document ids of the corpus.

        Raises:
          InputError: the corpus has no ids, or a judged document is not among them.
        """
        judged = {document for grades in self.qrels.values() for document in grades}
        missing = sorted(judged.difference(known))
        if not missing:
            return
        if not any(known):
            raise InputError(
                "the corpus has no document ids, so judgements cannot be applied",
                expected=f"the ids of {len(judged)} judged documents, such as {missing[0]!r}",
                found="documents without ids",
                fix=f"build a corpus with ids ({_BUILD}) and a run over it",
            )
        raise InputError(
            "judged documents are not in the corpus",
            where=f"{QRELS} of {self.name}",
            expected=f"ids of the corpus, such as {min(filter(None, known))!r}",
            found=f"{len(missing)} of {len(judged)} unknown: {', '.join(missing[:3])}",
            fix=f"use a run over the corpus of these judgements ({_BUILD}); or give "
            "--skip-unknown to leave these judgements out",
        )

    def without_unknown(self, known: Collection[str]) -> "JudgedSet":
        """The set without judgements of documents that are not in `known`.

        Raises:
          InputError: no query with a relevant document is left.
        """
        documents = set(known)
        qrels = {
            query: {document: grade for document, grade in grades.items() if document in documents}
            for query, grades in self.qrels.items()
        }
        kept = _judged(self.name, self.queries, qrels)
        if not kept.queries:
            relevant = next(d for judged in self.qrels.values() for d, g in judged.items() if g)
            raise InputError(
                "no relevant document is in the corpus",
                where=f"{QRELS} of {self.name}",
                expected=f"ids of the corpus, such as {min(filter(None, documents))!r}",
                found=f"ids such as {relevant!r}",
                fix=f"use a run over the corpus of these judgements ({_BUILD})",
            )
        log.info(
            "left out %d judgements of documents that the corpus does not have; %d of %d queries "
            "have a relevant document in it",
            sum(map(len, self.qrels.values())) - sum(map(len, qrels.values())),
            len(kept.queries),
            len(self.queries),
        )
        return kept


def read_judged_set(folder: str | Path, part: str = "all") -> JudgedSet:
    """Reads the queries and judgements of a folder.

    Args:
      folder: see the module.
      part: name of a file of `qrels/` without `.tsv`; `all`: all files.

    Raises:
      InputError: a file is missing or malformed (the error names the line), a judgement names a
        query that does not exist, or no query has a relevant document.
    """
    path = Path(folder)
    queries = dict(_read_queries(path / QUERIES))
    qrels: Qrels = {}
    for file in _qrels_files(path, part):
        for number, (query, document, grade) in _read_qrels(file):
            if query not in queries:
                raise InputError(
                    "a judgement names a query that does not exist",
                    where=f"{file}:{number}",
                    expected=f"an _id of {path / QUERIES}",
                    found=query,
                    fix="give the queries and judgements of the same set",
                )
            qrels.setdefault(query, {})[document] = grade
    judged = _judged(path.name, queries, qrels)
    if not judged.queries:
        where, expected = path, "a grade above 0 for at least one query"
        raise InputError("no query has a relevant document", where=where, expected=expected)
    return judged


def _judged(name: str, queries: dict[str, str], qrels: Qrels) -> JudgedSet:
    kept = {q: text for q, text in queries.items() if any(qrels.get(q, {}).values())}
    return JudgedSet(name, kept, {query: qrels[query] for query in kept})


def _qrels_files(folder: Path, part: str) -> list[Path]:
    """The files of a part, in the order of their names."""
    single, several = folder / f"{QRELS}.tsv", folder / QRELS
    found = sorted(several.glob("*.tsv")) if several.is_dir() else []
    if part != "all":
        found = [file for file in found if file.stem == part]
    elif single.is_file():
        found = [single]
    if not found:
        present = sorted(file.name for file in several.glob("*")) if several.is_dir() else []
        raise InputError(
            "no relevance judgements",
            where=folder,
            expected=f"{single.name} or {QRELS}/*.tsv"
            if part == "all"
            else f"{QRELS}/{part}.tsv (--part={part})",
            found=", ".join(present) or f"no folder {QRELS}",
        )
    return found


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not empty."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(
            "not a folder of queries and judgements",
            where=file,
            expected=f"a folder with {QUERIES}, and {QRELS}.tsv or {QRELS}/*.tsv",
            found="no such file",
        ) from error
    except UnicodeDecodeError as error:
        raise InputError("the file is not UTF-8", where=file, found=error) from error


def _read_queries(file: Path) -> Iterator[tuple[str, str]]:
    for number, line in _lines(file):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _malformed(file, number, '{"_id": …, "text": …}', error) from error
        names = [fields.get(name) for name in ("_id", "text")] if isinstance(fields, dict) else []
        if not names or not isinstance(names[1], str) or not isinstance(names[0], str | int):
            raise _malformed(file, number, '{"_id": …, "text": …}', line[:60])
        if names[0] == "":
            raise _malformed(file, number, "an _id that is not empty", line[:60])
        if UNPAIRED_SURROGATE.search(names[1]):
            raise _malformed(file, number, "Unicode text", "an unpaired surrogate")
        yield str(names[0]), names[1]


def _read_qrels(file: Path) -> Iterator[tuple[int, tuple[str, str, int]]]:
    """Numbered judgements."""
    for number, line in _lines(file):
        cells = line.split("\t")
        if len(cells) == 3 and _GRADE.fullmatch(cells[2].strip()):
            yield number, (cells[0], cells[1], max(int(cells[2]), 0))
        elif number > 1 or len(cells) != 3:
            expected = "query id, document id and a whole number, separated by tabs"
            raise _malformed(file, number, expected, line[:60])


def _malformed(file: Path, number: int, expected: str, found: object) -> InputError:
    return InputError("malformed line", where=f"{file}:{number}", expected=expected, found=found)
