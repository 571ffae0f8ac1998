"""The index builder of a run in a thread of the test."""

import contextlib
import os
import threading
from collections.abc import Iterator

from realm_jax.index_builder import run as index_builder

SECONDS = 600.0  # longest wait for its end


@contextlib.contextmanager
def building(workdir: str | os.PathLike[str], poll_seconds: float = 0.02) -> Iterator[None]:
    """Builds indexes until the block ends, also if it raises: the thread would outlive the tests.

    Args:
      workdir: the run folder, or its address on an object store.
      poll_seconds: between two looks for a new snapshot.
    """
    stop = threading.Event()
    thread = threading.Thread(target=index_builder.run, args=(str(workdir), poll_seconds, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SECONDS)
