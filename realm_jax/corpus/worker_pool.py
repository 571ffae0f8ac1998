"""A pool of worker processes that returns results in the order of the input."""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from realm_jax.corpus.documents import Document
from realm_jax.errors import RealmError

T = TypeVar("T")
R = TypeVar("R")

BATCH_CHARACTERS = 1 << 20  # of text per task of a worker
_TASKS_PER_WORKER = 2  # submitted at a time; bounds the memory


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yields `work(item)` for every item, in order, computed by `workers` processes.

    Workers are started with `spawn`: `work` must be picklable, and a script that calls this with
    `workers > 1` needs `if __name__ == "__main__":`.

    Raises:
      RealmError: a worker was killed, most likely because memory ran out.
    """
    if workers <= 1:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    submitted: deque[Future[R]] = deque()
    try:
        for item in items:
            submitted.append(pool.submit(work, item))
            if len(submitted) > _TASKS_PER_WORKER * workers:
                yield submitted.popleft().result()
        while submitted:
            yield submitted.popleft().result()
    except BrokenProcessPool as error:
        raise RealmError(
            "a worker process was killed",
            where=f"one of {workers} workers",
            found=str(error),
            fix="run the command again with fewer --workers: memory has most likely run out",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


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
