"""Changes passages of a finished run: first its corpus, then its index, both on disk."""

import contextlib
import logging
from collections.abc import Iterator, Sequence

from realm_jax.artifacts.current_index import CurrentIndex, open_current, up_to_date_command
from realm_jax.artifacts.index_writer import Embedded, extend
from realm_jax.artifacts.run_config import NO_PATHS, Paths
from realm_jax.corpus.generations import GenerationSummary, WrittenText, write_passages_generation
from realm_jax.errors import InputError, RealmError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.passage_writer import PassageWriter
from realm_jax.storage import files

MOST_PENDING = 1000  # passages that are embedded in one call

log = logging.getLogger(__name__)


class PassageEditor:
    """Writes and removes passages of the corpus of a run.

    If the process is killed between the two publications, the next change or `bring_up_to_date`
    embeds what is missing; meanwhile no changed passage is found.

    Args:
      answerer: of the run.
      paths: with which it was opened, for messages.
    """

    def __init__(self, answerer: Answerer, paths: Paths = NO_PATHS):
        self._run = answerer.run
        words, current = answerer.store.vocabulary, answerer.current
        self._writer = PassageWriter(current.base, words, answerer.config)
        self._command = up_to_date_command(self._run.workdir, paths)

    def warm_up(self) -> None:
        """Compiles the program that embeds one passage."""
        self._writer.vectors([self._writer.pieces("?", "?")])

    def change(
        self,
        current: CurrentIndex,
        written: Sequence[WrittenText],
        removed: Sequence[int] = (),
        restored: bool = False,
    ) -> tuple[GenerationSummary, CurrentIndex]:
        """Publishes a generation of the corpus and an index update for it.

        Args:
          current: the index as it was opened; other processes may have changed it since.
          written: see `write_passages_generation`.
          removed: see `write_passages_generation`.
          restored: the texts were in the corpus before; they may be longer than `lengths.passage`.

        Raises:
          InputError: a new text is empty or longer than `lengths.passage`; see
            `write_passages_generation`; no permission to write; or more than `MOST_PENDING`
            passages are waiting to be embedded. Or the corpus was changed, but then the index could
            not be brought up to date: repeating the change would add its passages again.
        """
        for text in () if restored else written:
            self._writer.pieces(text.title, text.body)
        newest = self._newest(current)
        with _writable(current):
            summary = write_passages_generation(newest.store, written, removed)
        try:
            return summary, self._extended(newest)
        except (OSError, RealmError) as error:
            raise self._not_searchable(error) from error

    def bring_up_to_date(self, current: CurrentIndex) -> CurrentIndex:
        """Embeds the passages that have changed, and publishes an index update.

        Raises:
          InputError: there are more than `MOST_PENDING`, or no permission to write.
        """
        with _writable(current):
            return self._extended(current)

    def _extended(self, current: CurrentIndex) -> CurrentIndex:
        newest = self._newest(current)
        ids, store = newest.missing, newest.store
        done = Embedded(store.generation, ids, self._writer.vectors_of(store, ids))
        return extend(self._run, newest, done, self._writer.vectors_of)

    def _not_searchable(self, error: OSError | RealmError) -> InputError:
        """Says that a change is in the corpus, but not in the index; it is logged too."""
        saved = InputError(
            "the change is saved, but its passages are not found yet: the index was not updated",
            where=self._run.index_updates,
            expected="an index update for the newest generation of the corpus",
            found=error.problem if isinstance(error, RealmError) else error,
            fix=f"do not save again; correct the cause, then run: {self._command}",
        )
        log.error("%s", saved)
        return saved

    def _newest(self, current: CurrentIndex) -> CurrentIndex:
        """The newest version of an index; raises an InputError if too much is pending."""
        store = current.store.newest()
        newest = open_current(self._run, current.base.step, store, before=current)
        if len(newest.missing) > MOST_PENDING:
            raise InputError(
                "many passages of the corpus are waiting to be embedded",
                where=store.path,
                expected=f"at most {MOST_PENDING}",
                found=len(newest.missing),
                fix=f"bring the index up to date first: {self._command}",
            )
        return newest


@contextlib.contextmanager
def _writable(current: CurrentIndex) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where, found = error.filename or current.store.path, error.strerror
        if error.errno in files.FULL:
            raise InputError(
                "passages cannot be changed: the disk is full",
                where=where,
                expected="free space for the corpus and the run",
                found=found,
                fix="delete other files; save again if the list of changes lacks the passage",
            ) from error
        if error.errno in files.NOT_WRITABLE:
            raise InputError(
                "passages cannot be changed: no permission to write",
                where=where,
                expected="write permission for the folders of the corpus and of the run",
                found=found,
                fix="change the permissions, or serve with --read-only",
            ) from error
        raise
