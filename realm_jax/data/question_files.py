"""Files of questions with answers: our own form and those of the open-QA benchmarks.

| format | content | answers |
|---|---|---|
| own | JSON lines `question`, `answers`, perhaps `evidence` | texts |
| nq | Natural Questions open: JSON lines `question`, `answer`; or TSV, question and list | texts |
| webquestions | JSON array of `qText`, `answers`, or the TFDS dataset `web_questions` | texts |
| trec | CuratedTREC: TSV id, type, question, regular expression | one expression |
| squad | SQuAD v1.1, its paragraphs left out | texts |

Files may be packed (.gz, .xz, .bz2) or archives of such files. What the shared copies of the
benchmarks lack is in docs/how_to/bring_questions.md.
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

from realm_jax.corpus.sources import damage_named, matches, streams
from realm_jax.data import published_splits, web_questions
from realm_jax.errors import InputError
from realm_jax.text.expression import Expression

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # JSON can spell half of a surrogate pair
LONGEST_LIST = 100_000  # characters of a Python list in a TSV file; NQ dev's longest has 342

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A question and its accepted answers.

    Attributes:
      text: the question.
      answers: texts, or regular expressions.
      evidence: the passage known to hold an answer; -1 is unknown.
      expression: whether the answers are regular expressions.
    """

    text: str
    answers: tuple[str, ...]
    evidence: int = -1
    expression: bool = False


def read_questions(path: str | Path, format: str = "own", part: str = "all") -> list[Question]:
    """All questions of a file, in its order; says how their number compares with the published one.

    Args:
      path: a file or a glob, or `tfds:train` or `tfds:test` for TFDS's own WebQuestions.
      format: one of `FORMATS`.
      part: `all`, or the `train` or `dev` part of a published split, see `published_splits`.

    Raises:
      InputError: names the file, and where there is one the line, that cannot be used.
    """
    if format not in READERS:
        raise InputError(
            "unknown format of questions", expected=" or ".join(FORMATS), found=repr(format)
        )
    if format == "webquestions" and str(path).startswith(web_questions.PREFIX):
        questions = [_made(*record, {}) for record in web_questions.read(str(path))]
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
            "a folder where a question file was expected",
            where=path,
            fix="name the file, or give a quoted glob",
        )
    try:
        files = matches(str(path))
    except InputError as error:
        raise InputError(
            "no question file",
            where=path,
            expected="a file or a glob; to fine-tune, a folder with train.jsonl too",
        ) from error
    for stream in itertools.chain.from_iterable(streams(str(file)) for file in files):
        with damage_named(stream.name):
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
    """The TSV form, each line as csv has it: a quoted field may hold doubled quotes and tabs."""
    for where, line in lines:
        try:
            fields = next(csv.reader([line], delimiter="\t", strict=True))
        except csv.Error as error:
            raise InputError("line is not TSV", where=where, found=str(error)) from error
        if len(fields) != 2:
            raise _not_a_question(where, "question TAB ['answer', ...]", line)
        yield _made(where, fields[0], _python_list(fields[1], where), {})


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
        raise _not_a_question(where, "a Python list of strings", text) from error


def _read_webquestions(name: str, file: BufferedIOBase) -> Iterator[Question]:
    records = _json(name, file)
    if not isinstance(records, list):
        raise _not_a_question(name, "a JSON array", type(records).__name__)
    for number, record in enumerate(records, 1):
        yield _from_record(record, f"{name}: entry {number}", "qText", "answers")


def _read_trec(name: str, file: BufferedIOBase) -> Iterator[Question]:
    for where, line in _lines(name, file):
        # Only three tabs separate: one expression of the published file holds a tab.
        fields = line.split("\t", 3)
        if len(fields) < 4:
            raise _not_a_question(where, "id TAB type TAB question TAB regular expression", line)
        Expression(fields[3], where)
        yield _made(where, fields[2], [fields[3]], {"expression": True})


def _read_squad(name: str, file: BufferedIOBase) -> Iterator[Question]:
    where, document = name, _json(name, file)
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    where = f"{name}: question {entry['id']}"
                    answers = [answer["text"] for answer in entry["answers"]]
                    yield _made(where, entry["question"], list(dict.fromkeys(answers)), {})
    except (KeyError, TypeError) as error:
        raise _not_a_question(
            f"at or after {where}",
            "SQuAD v1.1: data, paragraphs, qas, id, question, answers, text",
            f"{type(error).__name__}: {error}",
        ) from error


def _lines(name: str, file: BufferedIOBase) -> Iterator[tuple[str, str]]:
    """Where and what every line is, line ends and blank lines left out."""
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
            found=f"{error.reason} at byte {error.start} there",
            fix="iconv -f ITS_ENCODING -t UTF-8",
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
        raise _not_a_question(
            where, f'{{"{question}": "...", "{answers}": ["...", ...]}}', json.dumps(record)
        )
    known = {key: record[key] for key in more if key in record}
    return _made(where, record[question], record[answers], known)


def _made(where: str, text: Any, answers: Any, more: dict[str, Any]) -> Question:
    """The question, once its parts are what they should be."""
    if not isinstance(text, str) or not text.strip():
        raise _not_a_question(where, "a question that is not empty", repr(text))
    if not isinstance(answers, list) or not answers:
        raise _not_a_question(where, "a list of at least one answer in answers", repr(answers))
    if not all(isinstance(answer, str | int | float) for answer in answers):
        raise _not_a_question(where, "answers that are strings", repr(answers))
    texts = tuple(map(str, answers))
    if not all(answer.strip() for answer in texts):
        raise _not_a_question(where, "answers that are not empty", repr(answers))
    evidence = more.get("evidence", -1)
    if not isinstance(evidence, int):
        raise _not_a_question(where, "evidence that is a passage id", repr(evidence))
    if any(map(_HALF_CHARACTER.search, (text, *texts))):
        raise _not_a_question(where, "Unicode text", "half of a surrogate pair")
    return Question(text.strip(), texts, **more)


def _not_a_question(where: str, expected: str, found: str) -> InputError:
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
