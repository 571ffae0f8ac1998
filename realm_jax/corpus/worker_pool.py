"""A pool of worker processes that returns results in the order of the input."""

import contextlib
import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import TypeVar

from realm_jax.corpus.documents import Document
from realm_jax.errors import RealmError

T = TypeVar("T")
R = TypeVar("R")

_NO_GUARD = 78  # exit code of a worker that would run its parent's script again
BATCH_CHARACTERS = 1 << 20  # of text per task of a worker
_TASKS_PER_WORKER = 2  # submitted at a time; bounds the memory


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yields `work(item)` for every item, in order, computed by `workers` processes.

    Workers are started with `spawn`: `work` must be picklable, and a script that calls this with
    `workers > 1` needs `if __name__ == "__main__":`.

    Raises:
      RealmError: a worker was killed, most likely because memory ran out; or the script lacks
        `if __name__ == "__main__":`.
    """
    if workers <= 1:
        yield from map(work, items)
        return
    exit_if_imported_by_worker()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    submitted: deque[Future[R]] = deque()
    started: set[BaseProcess] = set()
    try:
        for item in items:
            with _nothing_from_current_folder():
                submitted.append(pool.submit(work, item))
            started |= set(multiprocessing.active_children())
            if len(submitted) > _TASKS_PER_WORKER * workers:
                yield submitted.popleft().result()
        while submitted:
            yield submitted.popleft().result()
    except BrokenProcessPool as error:
        pool.shutdown()  # now all exit codes are known
        if any(process.exitcode == _NO_GUARD for process in started):
            raise _no_guard() from error
        raise RealmError(
            "a worker process was killed",
            where=f"one of {workers} workers",
            found=str(error),
            fix="run the command again with fewer --workers: memory has most likely run out",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _nothing_from_current_folder() -> Iterator[None]:
    """Processes that start in this block do not import modules from the current folder."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]


def exit_if_imported_by_worker() -> None:
    """Ends a worker that is importing a script without `if __name__ == "__main__":`.

    Otherwise the worker would run the script again, and write into the folder of its parent.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(_NO_GUARD)


def _no_guard() -> RealmError:
    return RealmError(
        'the script starts worker processes outside of `if __name__ == "__main__":`',
        where=getattr(sys.modules["__main__"], "__file__", None),
        expected="a guard: Python imports the script again in each worker",
        found="a call that each worker would repeat",
        fix='put the call under `if __name__ == "__main__":`, or use workers=1',
    )


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Groups consecutive documents into batches of at least `BATCH_CHARACTERS` characters.

    Batches do not depend on file boundaries, so all workers are used even for one large file.
    """
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.body)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _start_worker() -> None:
    # There is one process per core already; more tokenizer threads would only compete for cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exits when the parent process has ended: a killed parent cannot stop its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
