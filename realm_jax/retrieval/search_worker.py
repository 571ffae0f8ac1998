"""The process that holds a searcher for `search_process`: loads it in the background, then answers.

A new process that loads may take the core of a step, so all of that runs at a lower priority, the
imports too: none of them stands at the top. Searches do not, for a step may wait for one.
"""

import contextlib
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

TOLD = ("kind", "size", "dims", "bytes")  # of a searcher that is loaded
LOWER = 10  # niceness
LOST = (EOFError, ConnectionError)  # the other process has ended, or let go


def main() -> None:
    """Its arguments are the folder of a saved searcher and the number of an open socket."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the parent, which may need us to finish
    folder, descriptor = sys.argv[1:]
    # A thread of its own, for on Linux each has a priority, which nobody may raise again.
    with ThreadPoolExecutor(1) as background:
        searcher = background.submit(_loaded, folder).result()
    with contextlib.suppress(*LOST):
        serve(searcher, Connection(int(descriptor)))


def _loaded(folder: str) -> Any:
    """The searcher, or the error that takes its place."""
    if sys.platform == "linux":  # elsewhere it would be that of the whole process
        os.nice(LOWER)
    from pathlib import Path

    from realm_jax.errors import RealmError
    from realm_jax.retrieval.searcher import load_searcher

    try:
        return load_searcher(Path(folder))
    except RealmError as error:
        return error


def serve(searcher: Any, connection: Connection) -> None:
    """Says what was loaded, and answers until the other end is closed."""
    if isinstance(searcher, Exception):
        connection.send_bytes(_as_json(searcher))
        return
    searcher.begin_threads()  # those of the load have its priority
    told = {key: getattr(searcher, key) for key in TOLD}
    connection.send_bytes(json.dumps(told).encode())
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
        connection.send_bytes(_as_json(error))
        return
    connection.send_bytes(b"{}")
    for part in (rows, scores):
        connection.send_bytes(np.ascontiguousarray(part).tobytes())


def _as_json(error: Any) -> bytes:
    from realm_jax import errors

    parts = {key: getattr(error, key) for key in ("where", "expected", "found", "fix")}
    said = {key: None if part is None else str(part) for key, part in parts.items()}
    kind = next(kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return json.dumps({"error": kind.__name__, "problem": error.problem, **said}).encode()


if __name__ == "__main__":
    main()
