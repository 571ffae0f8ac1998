"""A finished run that answers questions while users add, edit and remove passages.

No training is needed: knowledge is in the corpus (REALM, section 1).
"""

import functools
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from realm_jax import __version__
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.artifacts.run_config import NO_PATHS, Paths
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.closed_book import ClosedBook
from realm_jax.inference.edits import EditedStore, WrittenPassage, edited_index
from realm_jax.inference.fill_mask import MaskFiller
from realm_jax.inference.padded_batches import SIZES, padded_batches
from realm_jax.inference.passage_writer import PassageWriter
from realm_jax.retrieval.fusion import Fusion
from realm_jax.serve.examples import example_inputs

MOST_CHANGES = 1000  # passages that may differ from the published index at one time
MOST_PASSAGES = 20  # passages read per question
MOST_QUESTIONS = SIZES[-1]  # in one batch


@dataclass(frozen=True)
class _Changes:
    """Differences from the published index.

    Attributes:
      version: number of changes since the start.
      next_id: id of the next added passage; ids are never reused.
      written: added and edited passages by id.
      removed: ids of published passages that were removed.
    """

    version: int = 0
    next_id: int = 0
    written: dict[int, WrittenPassage] = field(default_factory=dict)
    removed: frozenset[int] = frozenset()


class LiveRun:
    """Answers questions and applies changes to passages; thread-safe, one call at a time.

    Changes are kept in memory and never written to the run folder. A changed passage is embedded
    with the parameters published in the index, so that all vectors of the index are comparable.
    """

    def __init__(self, answerer: Answerer, retriever: str = "dense"):
        assert isinstance(answerer.index, PublishedIndex)
        self._index, self._retriever = answerer.index, retriever
        self._lock = threading.Lock()
        self._published, self._base_filler = answerer, MaskFiller(answerer)
        self._size = len(answerer.store)  # added passages have ids from here on
        self._closed_book = ClosedBook(answerer)
        self._writer = PassageWriter(self._index, answerer.store, answerer.config)
        self._apply(_Changes(next_id=self._size))

    @classmethod
    def open(
        cls,
        workdir: str,
        retriever: str = "dense",
        fusion: Fusion | None = None,
        paths: Paths = NO_PATHS,
    ) -> "LiveRun":
        """Opens a finished run; raises as `Answerer.open`.

        Args:
          workdir: the run folder.
          retriever: of requests that name none; see `Answerer.by`.
          fusion: of hybrid retrieval.
          paths: see `Answerer.open`.
        """
        return cls(Answerer.open(workdir, paths).by(retriever, fusion), retriever)

    @property
    def answers_questions(self) -> bool:
        """See `Answerer.takes_questions`."""
        return self._published.takes_questions

    def warm_up(self) -> None:
        """Compiles the programs that the first requests need."""
        self.fill("[MASK]")
        if self.answers_questions:
            self.ask("?", None)
        self._writer.write("?", "?")

    def about(self) -> dict[str, Any]:
        """Returns a description of the run as JSON values."""
        a = self._published
        return {
            "version": __version__,
            "step": a.export.step,
            "index_step": self._index.step,
            "passages": self._answerer.index.searcher.size,
            "answers_questions": self.answers_questions,
            "k": a.config.stages.qa.reader_passages,
            "retriever": self._retriever,
            "edits_version": self._changes.version,
        }

    @functools.cached_property
    def _examples(self) -> list[str]:
        return example_inputs(self._published, questions=self.answers_questions)

    def examples(self) -> list[str]:
        """Returns inputs to try; see `example_inputs`."""
        with self._lock:
            return self._examples

    def ask(
        self, question: str, k: int | None = None, retriever: str | None = None
    ) -> dict[str, Any]:
        """Answers a question: the fields of `Answer`, `closed_book` and `edits_version`.

        `retriever` None is that of the server.

        Raises:
          InputError: see `Answerer.ask`.
        """
        with self._lock:
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
            filler = self._filler.over(self._answerer_by(retriever))
            return self._with_edits(filler.fill(text, answer).as_dict())

    def _answerer_by(self, retriever: str | None) -> Answerer:
        return self._answerer.by(retriever or self._retriever)

    def _with_closed_book(self, answer: dict[str, Any]) -> dict[str, Any]:
        closed_book = self._closed_book.ask(answer["question"])
        return self._with_edits({**answer, "closed_book": closed_book and vars(closed_book)})

    def _with_edits(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Adds `edits_version`, and to each passage whether it was added or edited."""
        marked = [{**p, "edit": self._kind(p["id"])} for p in answer["passages"]]
        return {**answer, "passages": marked, "edits_version": self._changes.version}

    def _kind(self, i: int) -> str | None:
        changed = i in self._changes.written
        return None if not changed else "edited" if i < self._size else "added"

    def add(self, title: str, text: str) -> dict[str, Any]:
        """Adds a passage; it can be retrieved from the next question on.

        Raises:
          InputError: an empty passage, one longer than `lengths.passage`, or too many changes.
        """
        with self._lock:
            changes = self._changes
            return self._write(changes.next_id, title, text, next_id=changes.next_id + 1)

    def edit(self, i: int, title: str, text: str) -> dict[str, Any]:
        """Replaces the text of passage `i`; restores it if it was removed. Raises as `add`."""
        with self._lock:
            self._check_known(i)
            return self._write(i, title, text, next_id=self._changes.next_id)

    def remove(self, i: int) -> dict[str, Any]:
        """Removes passage `i` from the search; refuses to remove the last passage."""
        with self._lock:
            self._check_known(i)
            self._check_room(i)
            changes = self._changes
            published = {i} if i < self._size else set()
            return self._change(
                i, written=_without(changes.written, i), removed=changes.removed | published
            )

    def undo(self, i: int | None = None) -> dict[str, Any]:
        """Undoes the changes to passage `i`; None undoes all changes."""
        with self._lock:
            changes = self._changes
            if i is None:
                return self._change(None, written={}, removed=frozenset())
            self._check_known(i)
            return self._change(
                i, written=_without(changes.written, i), removed=changes.removed - {i}
            )

    def changes(self) -> dict[str, Any]:
        """Returns all passages that differ from the published index."""
        changes = self._changes
        written = [
            {"id": i, "title": w.title, "text": w.body, "edit": self._kind(i)}
            for i, w in sorted(changes.written.items())
        ]
        store = self._published.store
        removed = [
            {"id": i, "title": store.title(i), "text": store.body(i), "edit": "removed"}
            for i in sorted(changes.removed)
        ]
        return {
            "passages": written + removed,
            "index_step": self._index.step,
            "edits_version": changes.version,
        }

    def _write(self, i: int, title: str, text: str, next_id: int) -> dict[str, Any]:
        self._check_room(i)
        written = {**self._changes.written, i: self._writer.write(title.strip(), text.strip())}
        removed = self._changes.removed - {i}
        return self._change(i, written=written, removed=removed, next_id=next_id)

    def _change(self, i: int | None, **parts: Any) -> dict[str, Any]:
        self._apply(replace(self._changes, version=self._changes.version + 1, **parts))
        return {
            "id": i,
            "edit": None if i is None else self._kind(i),
            "index_step": self._index.step,
            "edits_version": self._changes.version,
        }

    def _apply(self, changes: _Changes) -> None:
        """Builds new views of index and store; views in use are never modified."""
        base = self._published
        index = edited_index(self._index, changes.written, changes.removed)
        if index.searcher.size == 0:
            raise InputError(
                "the last passage cannot be removed", expected="at least one passage", found=0
            )
        store = EditedStore(base.store, changes.written)
        self._answerer = base.over(index, store, changes.removed)
        self._filler = self._base_filler.over(self._answerer)
        self._changes = changes

    def _check_known(self, i: int) -> None:
        changes = self._changes
        if not (0 <= i < self._size or i in changes.written):
            raise InputError(
                "no such passage",
                where=f"passage {i}",
                expected=f"0 to {self._size - 1}, or the id of an added passage",
                found=i,
            )

    def _check_room(self, i: int) -> None:
        changed = set(self._changes.written) | self._changes.removed
        if len(changed | {i}) > MOST_CHANGES:
            raise InputError(
                "too many changes at a time",
                expected=f"at most {MOST_CHANGES} changed passages",
                found=len(changed) + 1,
                fix="undo some, or change the corpus itself and build its index again",
            )


def _without(written: dict[int, WrittenPassage], i: int) -> dict[int, WrittenPassage]:
    return {j: passage for j, passage in written.items() if j != i}
