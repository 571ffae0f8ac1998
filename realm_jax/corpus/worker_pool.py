"""Work on several processes, results in the order of the input."""

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

BATCH_CHARACTERS = 1 << 20  # of text handed to a worker at a time
_AHEAD = 2  # items per worker under way, so that memory is bounded


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """`work` of every item, in the order of the items, on so many processes.

    Workers are started afresh (`spawn`): `work` must pickle, and a script that calls this with
    `workers > 1` needs the usual `if __name__ == "__main__":`.

    Raises:
      RealmError: a worker was killed, most likely for memory.
    """
    if workers <= 1:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(work, item))
            if len(under_way) > _AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise RealmError(
            "a worker process was killed",
            where=f"one of {workers} workers",
            found=str(error),
            fix="run it again with fewer --workers; the machine has most likely run out of memory",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Runs of documents that reach `BATCH_CHARACTERS`.

    Cut by text length, so that one huge file feeds many workers as well as many small files do.
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
    # One process per core already; threads of the tokenizer inside each would only contend.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed tells its workers nothing, and they would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
