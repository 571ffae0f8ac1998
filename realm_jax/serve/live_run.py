"""A finished run that answers questions while users add, edit and remove passages.

No training is needed: knowledge is in the corpus (REALM, section 1).
"""

import functools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from realm_jax import __version__
from realm_jax.artifacts.current_index import (
    CurrentIndex,
    check_coverage,
    newest_or_before,
    up_to_date_command,
)
from realm_jax.artifacts.run_config import NO_PATHS, Paths
from realm_jax.corpus.generation_files import newest_generation
from realm_jax.corpus.generations import WrittenText
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.closed_book import ClosedBook
from realm_jax.inference.fill_mask import MaskFiller
from realm_jax.inference.padded_batches import SIZES, padded_batches
from realm_jax.inference.passage_editor import MOST_PENDING, PassageEditor
from realm_jax.retrieval.fusion import Fusion
from realm_jax.serve.examples import example_inputs
from realm_jax.storage import commit

MOST_CHANGES = 1000  # passages that are listed, and whose changes are undone in one call
MOST_PASSAGES = 20  # passages read per question; more if fine-tuning has read more
MOST_QUESTIONS = SIZES[-1]  # in one batch
_POLL_SECONDS = 0.3  # between two looks for changes of other processes


class ReadOnlyError(InputError):
    """The server does not change passages."""


class LiveRun:
    """Answers questions and applies changes to passages, one at a time; thread-safe.

    Changes are written into the corpus and the run, so they last, and other servers of the run see
    them. A changed passage is embedded with the parameters published in the index, so that all
    vectors of the index are comparable.

    Args:
      answerer: of the run.
      retriever: of requests that name none; see `Answerer.by`.
      paths: with which the run was opened.
      read_only: whether changes are refused.

    Attributes:
      most_passages: the largest number of passages that a request may ask to read.
    """

    def __init__(
        self,
        answerer: Answerer,
        retriever: str = "dense",
        paths: Paths = NO_PATHS,
        *,
        read_only: bool = False,
    ):
        self._retriever, self._read_only = retriever, read_only
        self._lock = threading.Lock()
        self._answerer, self._filler = answerer, MaskFiller(answerer)
        self._use(answerer.current)
        self._closed_book, self._editor = ClosedBook(answerer), PassageEditor(answerer, paths)
        self.most_passages = max(MOST_PASSAGES, answerer.config.stages.qa.reader_passages)
        self._command = up_to_date_command(answerer.run.workdir, paths)
        self._checked, self._seen = time.monotonic(), (0, 0)  # see `_use`
        if not read_only and 0 < len(answerer.current.pending) <= MOST_PENDING:
            self._use(self._editor.bring_up_to_date(answerer.current))
        self._start = self._answerer.store

    @classmethod
    def open(
        cls,
        workdir: str,
        retriever: str = "dense",
        fusion: Fusion | None = None,
        paths: Paths = NO_PATHS,
        *,
        read_only: bool = False,
    ) -> "LiveRun":
        """Opens a finished run; raises as `Answerer.open`.

        Args:
          workdir: the run folder.
          retriever: see `LiveRun`.
          fusion: of hybrid retrieval.
          paths: see `LiveRun`.
          read_only: see `LiveRun`.
        """
        answerer = Answerer.open(workdir, paths).by(retriever, fusion)
        return cls(answerer, retriever, paths, read_only=read_only)

    def _on_disk(self) -> tuple[int, int]:
        """Number of the newest index update, and the newest generation of the corpus."""
        run, store = self._answerer.run, self._answerer.store
        return commit.latest(run.index_updates) or 0, newest_generation(store.path)

    def _look(self) -> None:
        """Opens what other processes have published; call it with the lock."""
        if time.monotonic() < self._checked + _POLL_SECONDS:
            return
        now = self._on_disk()
        if now != self._seen:
            before = self._answerer.current
            current = newest_or_before(self._answerer.run, before)
            if current is not before:
                check_coverage(current, self._command)
                self._use(current)
                self._seen = now
        self._checked = time.monotonic()

    def _use(self, current: CurrentIndex) -> None:
        """Answers with another version of the index; versions in use are never modified."""
        self._answerer = self._answerer.over(current)
        self._filler = self._filler.over(self._answerer)
        self._seen = (current.number, current.store.generation)

    @property
    def answers_questions(self) -> bool:
        """See `Answerer.takes_questions`."""
        return self._answerer.takes_questions

    def warm_up(self) -> None:
        """Compiles the programs that the first requests need."""
        self.fill("[MASK]")
        if self.answers_questions:
            self.ask("?", None)
        if not self._read_only:
            self._editor.warm_up()

    def about(self) -> dict[str, Any]:
        """Returns a description of the run as JSON values; does not wait for other calls."""
        if self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        a = self._answerer
        return {
            "version": __version__,
            "step": a.export.step,
            "index_step": a.index.step,
            "passages": a.index.searcher.size,
            "answers_questions": self.answers_questions,
            "k": a.config.stages.qa.reader_passages,
            "most_passages": self.most_passages,
            "retriever": self._retriever,
            "edits_version": self._version,
            "read_only": self._read_only,
        }

    @property
    def _version(self) -> int:
        """Number of changes of the corpus since the start that the index covers."""
        current, start = self._answerer.current, self._start
        hashes = current.store.lineage[: current.store.generation_of(current.corpus_hash)]
        return len(dict.fromkeys(hashes[start.generation - 1 :])) - 1

    @functools.cached_property
    def examples(self) -> list[str]:
        """Inputs to try; see `example_inputs`."""
        return example_inputs(self._answerer, questions=self.answers_questions)

    def ask(
        self, question: str, k: int | None = None, retriever: str | None = None
    ) -> dict[str, Any]:
        """Answers a question: the fields of `Answer`, `closed_book` and `edits_version`.

        `retriever` None is that of the server.

        Raises:
          InputError: see `Answerer.ask`.
        """
        with self._lock:
            self._look()
            answer = self._answerer_by(retriever).ask(question, k)
            return self._with_closed_book(answer.as_dict())

    def ask_all(
        self, questions: list[str], k: int | None = None, retriever: str | None = None
    ) -> list[dict[str, Any]]:
        """Answers up to MOST_QUESTIONS questions in one batch.

        Raises:
          InputError: see `Answerer.ask`; long questions are refused, not truncated.
        """
        with self._lock:
            self._look()
            for question in questions:
                self._answerer.check_fits(question)
            answers, answerer = [], self._answerer_by(retriever)
            for padded, count in padded_batches(questions):
                answers += answerer.ask_all(padded, k)[:count]
            return [self._with_closed_book(answer.as_dict()) for answer in answers]

    def fill(
        self, text: str, answer: str | None = None, retriever: str | None = None
    ) -> dict[str, Any]:
        """Fills the blank of a sentence: the fields of `Filling` and `edits_version`.

        Raises:
          InputError: see `MaskFiller.fill`.
        """
        with self._lock:
            self._look()
            filler = self._filler.over(self._answerer_by(retriever))
            return self._with_edits(filler.fill(text, answer).as_dict())

    def _answerer_by(self, retriever: str | None) -> Answerer:
        return self._answerer.by(retriever or self._retriever)

    def _with_closed_book(self, answer: dict[str, Any]) -> dict[str, Any]:
        closed_book = self._closed_book.ask(answer["question"]) if answer["answer"] else None
        return self._with_edits({**answer, "closed_book": closed_book and vars(closed_book)})

    def _with_edits(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Adds `edits_version`, and to each passage whether it was added or edited."""
        marked = [{**p, "edit": self._kind(p["id"])} for p in answer["passages"]]
        return {**answer, "passages": marked, "edits_version": self._version}

    def _kind(self, i: int) -> str | None:
        """How a passage differs from that at the start of the server; None: it does not."""
        start, now = self._start, self._answerer.store
        if not _is_live(now, i):
            return "removed" if _is_live(start, i) else None
        if not _is_live(start, i):
            return "added"
        return None if _text(now, i) == _text(start, i) else "edited"

    def add(self, title: str, text: str) -> dict[str, Any]:
        """Adds a passage; it can be retrieved from the next question on.

        Raises:
          InputError: an empty passage, or one longer than `lengths.passage`.
          ReadOnlyError: the server is read-only.
        """
        return self._change([WrittenText(None, title.strip(), text.strip())])

    def edit(self, i: int, title: str, text: str) -> dict[str, Any]:
        """Replaces the text of passage `i`; restores it if it was removed. Raises as `add`."""
        return self._change([WrittenText(i, title.strip(), text.strip())])

    def remove(self, i: int) -> dict[str, Any]:
        """Removes passage `i` from the corpus; refuses to remove the last passage."""
        return self._change(removed=[i])

    def undo(self, i: int | None = None) -> dict[str, Any]:
        """Undoes the changes to passage `i` since the start; None undoes all changes."""
        with self._lock:
            self._look()
            changed = self._changed() if i is None else [i]
            if len(changed) > MOST_CHANGES:
                raise InputError(
                    "too many changes to undo them at once",
                    expected=f"at most {MOST_CHANGES} changed passages",
                    found=len(changed),
                    fix="undo single changes, or use `realm corpus add` and `realm corpus remove`",
                )
            self._check_known(changed)
            start = self._start
            written = [WrittenText(i, *_text(start, i)) for i in changed if _is_live(start, i)]
            removed = [one for one in changed if self._kind(one) == "added"]
            self._write(written, removed, restored=True)
            return self._changed_reply(i)

    def changes(self) -> dict[str, Any]:
        """Returns the passages that differ from those at the start, at most `MOST_CHANGES`."""
        with self._lock:
            self._look()
            passages = []
            for i in self._changed()[:MOST_CHANGES]:
                kind = self._kind(i)
                store = self._start if kind == "removed" else self._answerer.store
                title, text = _text(store, i)
                passages.append({"id": i, "title": title, "text": text, "edit": kind})
            return {
                "passages": passages,
                "index_step": self._answerer.index.step,
                "edits_version": self._version,
            }

    def _changed(self) -> list[int]:
        """Ids of the passages that differ from those at the start; removed ones come last."""
        ids = self._answerer.store.changed_since(self._start.generation).tolist()
        kinds = {i: self._kind(i) for i in ids}
        return sorted((i for i in ids if kinds[i]), key=lambda i: (kinds[i] == "removed", i))

    def _change(
        self, written: Sequence[WrittenText] = (), removed: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Writes or removes one passage."""
        with self._lock:
            self._look()
            self._check_known([*(text.id for text in written if text.id is not None), *removed])
            ids = self._write(written, removed)
            return self._changed_reply([*ids, *removed][0])

    def _write(
        self, written: Sequence[WrittenText], removed: Sequence[int], restored: bool = False
    ) -> Sequence[int]:
        """Publishes changes and searches them from now on; returns the ids of written passages."""
        if self._read_only:
            raise ReadOnlyError(
                "this server does not change passages",
                expected="a server that was started without --read-only",
                found="a change",
            )
        summary, current = self._editor.change(self._answerer.current, written, removed, restored)
        self._use(current)
        return summary.ids

    def _changed_reply(self, i: int | None) -> dict[str, Any]:
        return {
            "id": i,
            "edit": None if i is None else self._kind(i),
            "index_step": self._answerer.index.step,
            "edits_version": self._version,
        }

    def _check_known(self, ids: Iterable[int]) -> None:
        """Raises an InputError for an id that no passage has, or had at the start."""
        store = self._answerer.store
        for i in ids:
            if not _is_live(store, i) and not _is_live(self._start, i):
                raise InputError(
                    "no such passage",
                    where=f"passage {i}",
                    expected=f"the id of a passage, 0 to {len(store) - 1}",
                    found=i,
                )


def _is_live(store: PassageStore, i: int) -> bool:
    return bool(store.is_live(np.array([i]))[0])


def _text(store: PassageStore, i: int) -> tuple[str, str]:
    return store.title(i), store.body(i)
