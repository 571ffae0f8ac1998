"""Readers for files of questions with answers: our JSON lines and the open-QA benchmarks.

| format | content | answers |
|---|---|---|
| own | JSON lines `question`, `answers`, optional `evidence` | texts |
| nq | Natural Questions open: JSON lines `question`, `answer`; or TSV, question and list | texts |
| webquestions | JSON array of `qText`, `answers`, or the TFDS dataset `web_questions` | texts |
| trec | CuratedTREC: TSV id, type, question, regular expression | one expression |
| squad | SQuAD v1.1 without its paragraphs | texts |

Files may be compressed (.gz, .xz, .bz2) or archives. See docs/how_to/bring_questions.md.
"""

import ast
import csv
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from realm_jax.corpus.input_files import matches, naming_damage, streams
from realm_jax.data import published_splits, web_questions
from realm_jax.errors import InputError
from realm_jax.text.expression import Expression

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON escapes can encode an unpaired surrogate
LONGEST_LIST = 100_000  # characters of an answer list in a TSV file; the longest of NQ dev has 342

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A question and its accepted answers.

    Attributes:
      text: the question.
      answers: texts or regular expressions.
      evidence: passage id known to contain an answer; -1 if unknown.
      expression: True if the answers are regular expressions.
    """

    text: str
    answers: tuple[str, ...]
    evidence: int = -1
    expression: bool = False


def read_questions(path: str | Path, format: str = "own", part: str = "all") -> list[Question]:
    """Reads all questions of a file in order, and logs how their number compares with the paper.

    Args:
      path: a file or a glob; `tfds:train` or `tfds:test` for WebQuestions from TFDS.
      format: one of `FORMATS`.
      part: `all`, or `train` or `dev` of a published split (see `published_splits`).

    Raises:
      InputError: a file or line is invalid; the message names it.
    """
    if format not in READERS:
        raise InputError(
            "unknown format of questions", expected=" or ".join(FORMATS), found=repr(format)
        )
    if format == "webquestions" and str(path).startswith(web_questions.PREFIX):
        questions = [_question(*record, {}) for record in web_questions.read(str(path))]
    else:
        questions = list(_from_files(path, READERS[format]))
    if part != "all":
        published_splits.check_part(part, format)
        questions = [q for q in questions if published_splits.part_of(q.text) == part]
    if not questions:
        raise InputError("question file is empty", where=path, expected=f"questions as {format}")
    log.info("%s: %s", path, published_splits.compared(format, len(questions)))
    return questions


def _from_files(path: str | Path, reader: "Reader") -> Iterator[Question]:
    if Path(path).is_dir():
        raise InputError(
            "the path is a folder, not a question file",
            where=path,
            fix="give the path of a file or a quoted glob",
        )
    try:
        files = matches(str(path))
    except InputError as error:
        raise InputError(
            "no question file",
            where=path,
            expected="a file or a glob; for fine-tuning also a folder with train.jsonl",
        ) from error
    for stream in itertools.chain.from_iterable(streams(str(file)) for file in files):
        with naming_damage(stream.name):
            yield from reader(stream.name, stream.file)


def _read_own(name: str, file: BufferedIOBase) -> Iterator[Question]:
    return _json_lines(_lines(name, file), "question", "answers", ("evidence",))


def _read_nq(name: str, file: BufferedIOBase) -> Iterator[Question]:
    lines = _lines(name, file)
    first = next(lines, None)
    if first is None:
        return iter(())
    lines = itertools.chain([first], lines)
    if first[1].startswith("{"):
        return _json_lines(lines, "question", "answer")
    return _nq_topics(lines)


def _nq_topics(lines: Iterator[tuple[str, str]]) -> Iterator[Question]:
    """TSV lines, parsed by csv: a quoted field may contain doubled quotes and tabs."""
    for where, line in lines:
        try:
            fields = next(csv.reader([line], delimiter="\t", strict=True))
        except csv.Error as error:
            raise InputError("line is not TSV", where=where, found=str(error)) from error
        if len(fields) != 2:
            raise _invalid_question(where, "question TAB ['answer', ...]", line)
        yield _question(where, fields[0], _python_list(fields[1], where), {})


def _python_list(text: str, where: str) -> Any:
    if len(text) > LONGEST_LIST:
        raise InputError(
            "list of answers is too long",
            where=where,
            expected=f"at most {LONGEST_LIST} characters",
            found=len(text),
        )
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise _invalid_question(where, "a Python list of strings", text) from error


def _read_webquestions(name: str, file: BufferedIOBase) -> Iterator[Question]:
    records = _json(name, file)
    if not isinstance(records, list):
        raise _invalid_question(name, "a JSON array", type(records).__name__)
    for number, record in enumerate(records, 1):
        yield _from_record(record, f"{name}: entry {number}", "qText", "answers")


def _read_trec(name: str, file: BufferedIOBase) -> Iterator[Question]:
    for where, line in _lines(name, file):
        # Split at the first three tabs only: one expression of the published file contains a tab.
        fields = line.split("\t", 3)
        if len(fields) < 4:
            raise _invalid_question(where, "id TAB type TAB question TAB regular expression", line)
        Expression(fields[3], where)
        yield _question(where, fields[2], [fields[3]], {"expression": True})


def _read_squad(name: str, file: BufferedIOBase) -> Iterator[Question]:
    where, document = name, _json(name, file)
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    where = f"{name}: question {entry['id']}"
                    answers = [answer["text"] for answer in entry["answers"]]
                    yield _question(where, entry["question"], list(dict.fromkeys(answers)), {})
    except (KeyError, TypeError) as error:
        raise _invalid_question(
            f"at or after {where}",
            "SQuAD v1.1: data, paragraphs, qas, id, question, answers, text",
            f"{type(error).__name__}: {error}",
        ) from error


def _lines(name: str, file: BufferedIOBase) -> Iterator[tuple[str, str]]:
    """Yields (file:line, text) for every line that is not blank, without the line end."""
    for number, content in enumerate(file, 1):
        line = _decoded(content, f"{name}:{number}").rstrip("\r\n")
        if line.strip():
            yield f"{name}:{number}", line


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            "question file is not UTF-8",
            where=where,
            found=f"{error.reason} at byte {error.start} of this line",
            fix="iconv -f ENCODING -t UTF-8",
        ) from error


def _json(name: str, file: BufferedIOBase) -> Any:
    try:
        return json.loads(_decoded(file.read(), name))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = name if line is None else f"{name}:{line}"
        raise InputError("question file is not JSON", where=where, found=str(error)) from error


def _json_lines(
    lines: Iterator[tuple[str, str]], question: str, answers: str, more: tuple[str, ...] = ()
) -> Iterator[Question]:
    for where, line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError("line is not JSON", where=where, found=str(error)) from error
        yield _from_record(record, where, question, answers, more)


def _from_record(
    record: Any, where: str, question: str, answers: str, more: tuple[str, ...] = ()
) -> Question:
    if not isinstance(record, dict) or not {question, answers} <= record.keys():
        raise _invalid_question(
            where, f'{{"{question}": "...", "{answers}": ["...", ...]}}', json.dumps(record)
        )
    known = {key: record[key] for key in more if key in record}
    return _question(where, record[question], record[answers], known)


def _question(where: str, text: Any, answers: Any, more: dict[str, Any]) -> Question:
    """A validated question."""
    if not isinstance(text, str) or not text.strip():
        raise _invalid_question(where, "a question that is not empty", repr(text))
    if not isinstance(answers, list) or not answers:
        raise _invalid_question(where, "a list of at least one answer in answers", repr(answers))
    if not all(isinstance(answer, str | int | float) for answer in answers):
        raise _invalid_question(where, "answers that are strings", repr(answers))
    texts = tuple(map(str, answers))
    if not all(answer.strip() for answer in texts):
        raise _invalid_question(where, "answers that are not empty", repr(answers))
    evidence = more.get("evidence", -1)
    if not isinstance(evidence, int):
        raise _invalid_question(where, "evidence that is a passage id", repr(evidence))
    if any(map(_SURROGATE.search, (text, *texts))):
        raise _invalid_question(where, "Unicode text", "an unpaired surrogate")
    return Question(text.strip(), texts, **more)


def _invalid_question(where: str, expected: str, found: str) -> InputError:
    return InputError(
        "not a question with answers", where=where, expected=expected, found=found[:200]
    )


Reader = Callable[[str, BufferedIOBase], Iterator[Question]]
READERS: dict[str, Reader] = {
    "own": _read_own,
    "nq": _read_nq,
    "webquestions": _read_webquestions,
    "trec": _read_trec,
    "squad": _read_squad,
}
FORMATS = tuple(READERS)
