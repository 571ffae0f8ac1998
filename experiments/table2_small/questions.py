"""Selects the questions that Z answers, and not by chance.

The rule was fixed before any reported run. A question is kept if at least one passage of Z has the
answer (exact match, `data.answers`), at most 1 % of the passages have it, and the question contains
a rare piece of the title of one of them. The second condition removes answers such as "France" or
"two", which five random passages often contain. The third removes passages that contain the answer
by chance.
"""

import json
import re
from collections import defaultdict
from pathlib import Path

from etils import epath

from realm_jax.corpus.store import PassageStore
from realm_jax.data.answers import accepted, contains_answer
from realm_jax.data.open_qa import question_rows
from realm_jax.data.question_files import Question, read_questions
from realm_jax.storage import files
from realm_jax.text.answer_form import folded, normalise_answer, plain
from table2_small.titles import Titles

MAX_PASSAGE_SHARE = 0.01  # of the passages of Z, with the answer of a kept question
QUESTION_PIECES = 64
TRAIN, DEV, HELD_OUT = "nq_train", "nq_dev", "nq_held_out"
HELD_OUT_EVERY = 10  # every tenth kept question of NQ train is held out for choosing settings
_WORD = re.compile(r"\w+")

# name -> (file in --data, format)
SOURCES = {
    TRAIN: ("NQ-open.train.partial55589.jsonl.xz", "nq"),
    DEV: ("topics.dpr.nq.dev.txt", "nq"),
    "webquestions": ("webquestions.*.json", "webquestions"),
    "trec": ("curatedtrec.large2180-train.tsv", "trec"),
    "squad": ("squad-train-v1.1.json.xz", "squad"),
}
SAID = "nq_dev_said"  # NQ dev without the condition on the title
EVALUATED = (DEV, HELD_OUT, "webquestions", "trec", "squad", SAID)  # not used for training
ANSWERED = (DEV, "webquestions", "trec", "squad")  # sets with exact match


class AnsweringPassages:
    """Finds the passages of a store that contain an answer, with an inverted index of words."""

    def __init__(self, store: PassageStore):
        self._store = store
        self._bodies = [store.body(row) for row in range(len(store))]
        self._with: dict[str, set[int]] = defaultdict(set)
        for row, body in enumerate(self._bodies):
            for word in {*plain(body).split(), *_WORD.findall(folded(body))}:
                self._with[word].add(row)

    def few(self, question: Question, most: int) -> list[int]:
        """The passages that contain the answer; empty if there are more than `most`."""
        finder, found = accepted(question), []
        for row in sorted(self.candidates(question)):
            if question.expression:
                says = finder.may_be_in(self._bodies[row])
            else:
                says = contains_answer(finder, self._store, row)
            if says:
                found.append(row)
            if len(found) > most:
                return []
        return found

    def candidates(self, question: Question) -> set[int]:
        """The passages with all words of an answer; no other passage contains the answer."""
        if question.expression:
            return set(range(len(self._bodies)))
        found: set[int] = set()
        for answer in question.answers:
            words = normalise_answer(answer).split()
            if words:
                found |= set.intersection(*(self._with.get(word, set()) for word in words))
        return found


class QuestionRule:
    """The rule above, for one knowledge corpus."""

    def __init__(self, store: PassageStore):
        self._passages, self._titles = AnsweringPassages(store), Titles(store)
        self._vocabulary = store.vocabulary
        self._most = max(1, int(MAX_PASSAGE_SHARE * len(store)))

    def said_and_kept(self, questions: list[Question]) -> tuple[list[Question], list[Question]]:
        """The questions with an answer in few passages, and those that also name one of these."""
        said = [(q, rows) for q in questions if (rows := self._passages.few(q, self._most))]
        texts = question_rows([q.text for q, _ in said], self._vocabulary, QUESTION_PIECES)
        kept = [
            question
            for (question, rows), pieces in zip(said, texts.ids, strict=True)
            if not self._titles.named(pieces).isdisjoint(rows)
        ]
        return [question for question, _ in said], kept

    def kept(self, questions: list[Question]) -> list[Question]:
        """The kept questions alone; the passages of the others are not searched for answers."""
        texts = question_rows([q.text for q in questions], self._vocabulary, QUESTION_PIECES)
        found = []
        for question, pieces in zip(questions, texts.ids, strict=True):
            named = self._titles.named(pieces)
            if not named.isdisjoint(self._passages.candidates(question)):
                rows = self._passages.few(question, self._most)
                found += [] if named.isdisjoint(rows) else [question]
        return found


def keep_questions(home: Path, data: Path, store: PassageStore) -> None:
    """Writes `questions/NAME` and `questions/counts.json` to `home`, unless they exist."""
    folder = home / "questions"
    if (folder / "counts.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rule = QuestionRule(store)
    dev = {question.text for question in read_source(data, DEV)}
    counts = {}
    for name in SOURCES:
        read = read_source(data, name)
        fresh = [q for q in read if name != TRAIN or q.text not in dev]
        said, kept = rule.said_and_kept(fresh)
        shares = {name: kept}
        if name == TRAIN:
            apart = kept[::HELD_OUT_EVERY]
            rest = [q for number, q in enumerate(kept) if number % HELD_OUT_EVERY]
            shares = {TRAIN: rest, HELD_OUT: apart}
        if name == DEV:
            shares[SAID] = said
        for share, own in shares.items():
            write_questions(kept_file(home, share), own)
            counts[share] = {
                "read": len(read),
                "not_in_dev": len(fresh),
                "said": len(said),
                "kept": len(own),
            }
    files.write_bytes(
        epath.Path(folder / "counts.json"), f"{json.dumps(counts, indent=1)}\n".encode()
    )


def read_source(data: Path, name: str) -> list[Question]:
    """All questions of a set in `SOURCES`."""
    file, format = SOURCES[name]
    return read_questions(str(data / file), format)


def kept_file(home: Path, name: str) -> Path:
    """The file with the kept questions of a set."""
    return home / "questions" / f"{name}.{'tsv' if name == 'trec' else 'jsonl'}"


def read_kept(home: Path, name: str) -> list[Question]:
    """The kept questions of a set."""
    return read_questions(kept_file(home, name), "trec" if name == "trec" else "own")


def write_questions(path: Path, questions: list[Question]) -> None:
    """Writes a file that `read_kept` reads."""
    lines = [
        f"{number}\tkept\t{question.text}\t{question.answers[0]}\n"
        if question.expression
        else json.dumps({"question": question.text, "answers": question.answers}) + "\n"
        for number, question in enumerate(questions)
    ]
    path.write_text("".join(lines), encoding="utf-8")
