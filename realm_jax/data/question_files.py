"""Readers for files of questions with answers: our JSON lines and the open-QA benchmarks.

| format | content | answers |
|---|---|---|
| own | JSON lines `question`, `answers`, optional `evidence` | texts |
| nq | Natural Questions open: JSON lines `question`, `answer`; or TSV, question and list | texts |
| webquestions | JSON array of `qText`, `answers`, or the TFDS dataset `web_questions` | texts |
| trec | CuratedTREC: TSV id, type, question, expression; or DPR's question and list | expressions |
| squad | SQuAD v1.1 without its paragraphs | texts |

Files may be compressed (.gz, .xz, .bz2) or archives. See docs/how_to/bring_questions.md.
"""

import ast
import csv
import itertools
import json
import logging
import tokenize
import warnings
from collections.abc import Callable, Iterator
from io import BufferedIOBase, StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from realm_jax.corpus.file_tree import matches
from realm_jax.corpus.input_files import Wanted, naming_damage, streams
from realm_jax.data import published_splits, web_questions
from realm_jax.data.question_checks import (
    Question,
    checked_question,
    invalid_question,
    printed_array,
)
from realm_jax.errors import InputError
from realm_jax.text.expression import Expression

LONGEST_LIST = 100_000  # characters of an answer list in a TSV file; the longest of NQ dev has 342

log = logging.getLogger(__name__)


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
        questions = [checked_question(*record, {}) for record in web_questions.read(str(path))]
    else:
        questions = list(_from_files(path, READERS[format]))
    if part != "all":
        questions = _of_part(questions, part, format, path)
    if not questions:
        raise InputError("question file is empty", where=path, expected=f"questions as {format}")
    log.info("%s: %s", path, published_splits.compared(format, len(questions)))
    return questions


def _of_part(questions: list[Question], part: str, format: str, path: str | Path) -> list[Question]:
    """The questions of a published split; an InputError if there are others only."""
    published_splits.check_part(part, format)
    chosen = [question for question in questions if published_splits.part_of(question.text) == part]
    if questions and not chosen:
        raise InputError(
            f"no question belongs to part {part}",
            where=path,
            expected=f"a file of all {format} questions, as {part} is chosen among them",
            found=f"{len(questions)} questions of the other part",
            fix="--part=all, if the file has one part only",
        )
    return chosen


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
    for stream in itertools.chain.from_iterable(
        streams(str(file), Wanted(text=False)) for file in files
    ):
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
    for where, question, answers in _topics(lines):
        yield checked_question(where, question, answers, {})


def _topics(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str, Any]]:
    for where, line in lines:
        try:
            fields = next(csv.reader([line], delimiter="\t", strict=True))
        except csv.Error as error:
            raise InputError("line is not TSV", where=where, found=str(error)) from error
        if len(fields) != 2:
            raise invalid_question(where, "question TAB ['answer', ...]", line)
        yield where, fields[0], _python_list(fields[1], where)


def _python_list(text: str, where: str) -> Any:
    if len(text) > LONGEST_LIST:
        raise InputError(
            "list of answers is too long",
            where=where,
            expected=f"at most {LONGEST_LIST} characters",
            found=len(text),
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes such as \d, which expressions hold
            answers = ast.literal_eval(text)
            kinds = [token.type for token in tokenize.generate_tokens(StringIO(text).readline)]
    except (
        ValueError,
        SyntaxError,
        TypeError,
        RecursionError,
        MemoryError,
        tokenize.TokenError,
    ) as error:
        raise invalid_question(where, "a Python list of strings", text) from error
    if (tokenize.STRING, tokenize.STRING) in pairwise(kinds):
        raise printed_array(where, text)
    return answers


def _read_webquestions(name: str, file: BufferedIOBase) -> Iterator[Question]:
    records = _json(name, file)
    if not isinstance(records, list):
        raise invalid_question(name, "a JSON array", type(records).__name__)
    for number, record in enumerate(records, 1):
        yield _from_record(record, f"{name}: entry {number}", "qText", "answers")


def _read_trec(name: str, file: BufferedIOBase) -> Iterator[Question]:
    for where, line in _lines(name, file):
        # Split at the first three tabs only: one expression of the published file contains a tab.
        fields = line.split("\t", 3)
        if len(fields) == 2:  # as in DPR: question, Python list of expressions
            [(_, text, expressions)] = _topics(iter([(where, line)]))
        elif len(fields) == 4:
            text, expressions = fields[2], [fields[3]]
        else:
            expected = "id TAB type TAB question TAB expression, or question TAB ['expression']"
            raise invalid_question(where, expected, line)
        question = checked_question(where, text, expressions, {"expression": True})
        for expression in question.answers:
            Expression(expression, where)
        yield question


def _read_squad(name: str, file: BufferedIOBase) -> Iterator[Question]:
    where, document = name, _json(name, file)
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    where = f"{name}: question {entry['id']}"
                    answers = [answer["text"] for answer in entry["answers"]]
                    yield checked_question(
                        where, entry["question"], list(dict.fromkeys(answers)), {}
                    )
    except (KeyError, TypeError) as error:
        raise invalid_question(
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
        raise invalid_question(
            where, f'{{"{question}": "...", "{answers}": ["...", ...]}}', json.dumps(record)
        )
    known = {key: record[key] for key in more if key in record}
    return checked_question(where, record[question], record[answers], known)


Reader = Callable[[str, BufferedIOBase], Iterator[Question]]
READERS: dict[str, Reader] = {
    "own": _read_own,
    "nq": _read_nq,
    "webquestions": _read_webquestions,
    "trec": _read_trec,
    "squad": _read_squad,
}
FORMATS = tuple(READERS)
