"""Splitting documents on several processes, results in the order of the input."""

import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path

from realm_jax.corpus.readers import Document
from realm_jax.corpus.split import Block, split
from realm_jax.errors import RealmError
from realm_jax.text.wordpiece import WordPieces

BATCH_CHARACTERS = 1 << 20  # of text handed to a worker at a time
_AHEAD = 2  # batches per worker under way, so that memory is bounded


def in_order(
    documents: Iterable[Document], vocabulary: str | Path, passage_pieces: int, workers: int
) -> Iterator[Block]:
    """Splits documents batch by batch; the blocks do not depend on `workers`.

    Batches are cut by text length, so that one huge file feeds many workers as well as many small
    files do. Workers are started afresh (`spawn`): a script that calls this with `workers > 1`
    needs the usual `if __name__ == "__main__":`.

    Raises:
      RealmError: a worker was killed, most likely for memory.
    """
    if workers <= 1:
        for batch in batches(documents):
            yield _split(batch, str(vocabulary), passage_pieces)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread)
    under_way: deque[Future[Block]] = deque()
    try:
        for batch in batches(documents):
            under_way.append(pool.submit(_split, batch, str(vocabulary), passage_pieces))
            if len(under_way) > _AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise RealmError(
            "a worker process was killed",
            where="corpus build",
            found=str(error),
            fix="give fewer --workers; the machine has most likely run out of memory",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Runs of documents that reach `BATCH_CHARACTERS`."""
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


def _one_thread() -> None:
    # One process per core already; threads of the tokenizer inside each would only contend.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _split(documents: list[Document], vocabulary: str, passage_pieces: int) -> Block:
    return split(documents, _words(vocabulary), passage_pieces)


@lru_cache(maxsize=1)
def _words(vocabulary: str) -> WordPieces:
    return WordPieces.load(vocabulary)
