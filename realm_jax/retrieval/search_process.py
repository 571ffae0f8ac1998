"""A saved searcher in a separate process, so that loading it does not block training.

ScaNN holds Python's GIL while it loads or frees an index: with 13.35 million rows no other thread
of the process runs for 10 to 22 seconds. Here a child process (`search_worker`) loads the index and
answers over a pair of sockets. It exits when its parent closes the connection or dies.
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
from realm_jax.retrieval.search_worker import DISCONNECTED, REPORTED
from realm_jax.retrieval.searcher import WHOLE, Part, Searcher, check_queries, load_searcher
from realm_jax.retrieval.searcher_files import read_description, saved_kinds

WORKER_MODULE = "realm_jax.retrieval.search_worker"
KINDS = {"scann"}  # searchers that hold the GIL while they load
MIN_ROWS = 20_000  # smaller indexes load in milliseconds, in this process
_FIX = "check whether memory ran out (exit code -9), and the messages above"
_EXIT_SECONDS = 60  # for a child to exit after it has closed the connection
_SEARCH_SECONDS = 600  # for one search; 13 million rows take less than a second


def load_in_subprocess(folder: str | Path, mesh: Any = None, part: Part = WHOLE) -> Searcher:
    """Loads a searcher like `load_searcher`, without blocking the threads of this process.

    Kinds and sizes that load quickly are loaded in this process.
    """
    path = Path(folder)
    if read_description(path)["size"] >= MIN_ROWS and saved_kinds(path) & KINDS:
        return SearchProcess(path, part)
    return load_searcher(folder, mesh, part)


class SearchProcess:
    """A searcher in a child process; see `Searcher`.

    Args:
      folder: local, of a saved searcher. It is not read after the constructor has returned.
      part: see `load_searcher`.

    Raises:
      DamageError: the files are damaged, or the child exited while it loaded them.
      MismatchError: the files have another format version.
    """

    def __init__(self, folder: Path, part: Part = WHOLE):
        ours, theirs = socket.socketpair()
        with theirs:
            given = map(str, (folder, *part, theirs.fileno()))
            command = [sys.executable, "-P", "-m", WORKER_MODULE, *given]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        weakref.finalize(self, self._connection.close)
        # A thread waits for the child, so that it does not stay a zombie after it has exited.
        self._waiting = threading.Thread(target=self._process.wait, daemon=True)
        self._waiting.start()
        self._lock = threading.Lock()
        try:
            reported = self._receive()
        except DISCONNECTED as error:
            raise DamageError(
                "the process that loads the index exited",
                where=folder,
                expected="a searcher",
                found=self._exit_code(),
                fix=_FIX,
            ) from error
        self.kind, self.size, self.dims, self.bytes = (reported[key] for key in REPORTED)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; concurrent calls wait for each other.

        Raises:
          RealmError: the process has exited, or did not answer and was killed.
        """
        check_queries(self, queries, k)
        try:
            with self._lock:
                self._connection.send_bytes(json.dumps({"k": k}).encode())
                self._connection.send_bytes(np.ascontiguousarray(queries).tobytes())
                self._await_answer(len(queries), k)
                rows, scores = (self._connection.recv_bytes() for _ in range(2))
        except DISCONNECTED as error:
            raise RealmError(
                "the process that searches the index exited",
                where=f"process {self._process.pid}",
                expected=f"{k} hits for each of {len(queries)} queries",
                found=self._exit_code(),
                fix=f"{_FIX}; then run the same command again: it resumes from the last checkpoint",
            ) from error
        shape = (len(queries), k)
        return (
            np.frombuffer(rows, np.int32).reshape(shape),
            np.frombuffer(scores, np.float32).reshape(shape),
        )

    def _await_answer(self, queries: int, k: int) -> None:
        if not self._connection.poll(_SEARCH_SECONDS):
            self._process.kill()
            raise RealmError(
                "the process that searches the index does not answer",
                where=f"process {self._process.pid}, which was killed",
                expected=f"{k} hits for each of {queries} queries within {_SEARCH_SECONDS} s",
                found="no answer",
                fix="check that the machine has free memory; then run the same command again: it "
                "resumes from the last checkpoint",
            )
        self._receive()

    def _receive(self) -> dict[str, Any]:
        """Reads one JSON message; raises the error that it contains."""
        message: dict[str, Any] = json.loads(self._connection.recv_bytes())
        if "error" in message:
            raise getattr(errors, message.pop("error"))(**message)
        return message

    def _exit_code(self) -> str:
        self._waiting.join(timeout=_EXIT_SECONDS)
        return f"exit code {self._process.returncode}"
