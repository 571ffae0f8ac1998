"""The child process of `search_process`: loads a searcher at low priority, then answers searches.

Loading could take CPU time from a training step, so it runs at a lower priority, including its
imports; for that reason they are not at the top of this module. Searches run at normal priority,
because a training step may wait for them.
"""

import contextlib
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from realm_jax import runtime

REPORTED = ("kind", "size", "dims", "bytes")  # attributes sent to the parent after loading
NICENESS = 10  # added while loading
DISCONNECTED = (EOFError, ConnectionError)  # the other process has exited or closed its end


def main() -> None:
    """Runs the worker.

    Its arguments are the folder of a saved searcher, the part of it and a socket's number.
    """
    for number in runtime.STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent handles them and may still search
    folder, first, every, descriptor = sys.argv[1:]
    # On Linux each thread has its own priority, and it cannot be raised again: use a new thread.
    with ThreadPoolExecutor(1) as background:
        searcher = background.submit(_load, folder, int(first), int(every)).result()
    with contextlib.suppress(*DISCONNECTED):
        serve(searcher, Connection(int(descriptor)))


def _load(folder: str, first: int, every: int) -> Any:
    """Returns the searcher, or the error that loading raised."""
    if sys.platform == "linux":  # elsewhere niceness applies to the whole process
        os.nice(NICENESS)
    from pathlib import Path

    from realm_jax.errors import RealmError
    from realm_jax.retrieval.searcher import Part, load_searcher

    try:
        return load_searcher(Path(folder), None, Part(first, every))
    except RealmError as error:
        return error


def serve(searcher: Any, connection: Connection) -> None:
    """Reports the loaded searcher, or the error; then answers until the parent disconnects."""
    if isinstance(searcher, Exception):
        connection.send_bytes(_to_json(searcher))
        return
    searcher.restart_threads()  # those started while loading have its low priority
    reported = {key: getattr(searcher, key) for key in REPORTED}
    connection.send_bytes(json.dumps(reported).encode())
    while True:
        _answer(searcher, connection)


def _answer(searcher: Any, connection: Connection) -> None:
    import numpy as np

    from realm_jax.errors import RealmError

    k = json.loads(connection.recv_bytes())["k"]
    queries = np.frombuffer(connection.recv_bytes(), np.float32).reshape(-1, searcher.dims)
    try:
        rows, scores = searcher.search(queries, k)
    except RealmError as error:
        connection.send_bytes(_to_json(error))
        return
    connection.send_bytes(b"{}")
    for part in (rows, scores):
        connection.send_bytes(np.ascontiguousarray(part).tobytes())


def _to_json(error: Any) -> bytes:
    from realm_jax import errors

    fields = {key: getattr(error, key) for key in ("where", "expected", "found", "fix")}
    texts = {key: None if field is None else str(field) for key, field in fields.items()}
    kind = next(kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return json.dumps({"error": kind.__name__, "problem": error.problem, **texts}).encode()


if __name__ == "__main__":
    main()
