"""A saved searcher in a process of its own, so that training does not stand still for it.

ScaNN loads and frees an index with Python's lock held: for 13.35 million rows nothing else in the
process runs for 10 to 22 seconds, whichever thread asked for it. Here a child does that
(`search_child`) and answers over a pair of sockets; it ends when the parent lets go of it, or dies.
"""

import json
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from realm_jax import errors
from realm_jax.errors import DamageError, RealmError
from realm_jax.retrieval.search_worker import LOST, TOLD
from realm_jax.retrieval.searcher import Searcher, check_queries, load_searcher, read_description

CHILD = "realm_jax.retrieval.search_worker"
KINDS = ("scann",)  # that hold the lock
FROM_ROWS = 20_000  # fewer are loaded in milliseconds
_MEMORY = "see whether memory ran out (-9), and what it wrote above"
_SECONDS = 60  # that a child which closed its end may take to end
_PATIENCE = 600  # seconds for one answer; a search of 13 million rows takes a fraction of one


def load_in_subprocess(folder: str | Path, mesh: Any = None) -> Searcher:
    """As `load_searcher`, and other threads go on meanwhile."""
    description = read_description(Path(folder))
    if description["kind"] in KINDS and description["size"] >= FROM_ROWS:
        return SearchProcess(Path(folder))
    return load_searcher(folder, mesh)


class SearchProcess:
    """A searcher that another process holds; see `Searcher`.

    Args:
      folder: local, holds the files of a saved searcher; not read any more once this returns.

    Raises:
      DamageError: the files, or that the process ended over them.
      MismatchError: files of another version.
    """

    def __init__(self, folder: Path):
        ours, its = socket.socketpair()
        with its:
            command = [sys.executable, "-m", CHILD, str(folder), str(its.fileno())]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )
        self._connection = Connection(ours.detach())
        weakref.finalize(self, self._connection.close)
        # Without anybody who waits for it an ended child would stay in the list of processes.
        self._waiting = threading.Thread(target=self._process.wait, daemon=True)
        self._waiting.start()
        self._asking = threading.Lock()
        try:
            told = self._answer()
        except LOST as error:
            raise DamageError(
                "the process that loads this index ended",
                where=folder,
                expected="a searcher",
                found=self._how_it_ended(),
                fix=_MEMORY,
            ) from error
        self.kind, self.size, self.dims, self.bytes = (told[key] for key in TOLD)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; one caller at a time.

        Raises:
          RealmError: besides, if the process has ended, or hangs: then it is ended.
        """
        check_queries(self, queries, k)
        try:
            with self._asking:
                self._connection.send_bytes(json.dumps({"k": k}).encode())
                self._connection.send_bytes(np.ascontiguousarray(queries).tobytes())
                self._await_answer(len(queries), k)
                rows, scores = (self._connection.recv_bytes() for _ in range(2))
        except LOST as error:
            raise RealmError(
                "the process that searches the index ended",
                where=f"process {self._process.pid}",
                expected=f"{k} hits for each of {len(queries)} queries",
                found=self._how_it_ended(),
                fix=f"{_MEMORY}; the same command goes on from the last checkpoint",
            ) from error
        shape = (len(queries), k)
        return (
            np.frombuffer(rows, np.int32).reshape(shape),
            np.frombuffer(scores, np.float32).reshape(shape),
        )

    def _await_answer(self, queries: int, k: int) -> None:
        if not self._connection.poll(_PATIENCE):
            self._process.kill()
            raise RealmError(
                "the process that searches the index does not answer",
                where=f"process {self._process.pid}, now ended",
                expected=f"{k} hits for each of {queries} queries within {_PATIENCE} s",
                found="no word",
                fix="see that the machine has memory to spare; "
                "the same command goes on from the last checkpoint",
            )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        """What the child says next; its errors are raised here."""
        said: dict[str, Any] = json.loads(self._connection.recv_bytes())
        if "error" in said:
            raise getattr(errors, said.pop("error"))(**said)
        return said

    def _how_it_ended(self) -> str:
        self._waiting.join(timeout=_SECONDS)
        return f"exit code {self._process.returncode}"
