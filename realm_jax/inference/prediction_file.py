"""The file of predictions of an evaluation, written while the evaluation runs."""

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax.errors import InputError
from realm_jax.storage import files
from realm_jax.storage.staging import local_to_read

log = logging.getLogger(__name__)


class PredictionFile:
    """Writes one JSON line per question; a failure does not end the evaluation.

    Attributes:
      path: of the file; None: nothing is written.
      error: the first error of a write, after which nothing more is written.
    """

    def __init__(self, path: epath.Path | None):
        self.path = path
        self.error: OSError | None = None
        self._file: Any = None
        self._closed = contextlib.ExitStack()
        self._kept: list[str] = []  # lines of an object, which is written at the end

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: epath.Path | None) -> Iterator["PredictionFile"]:
        """Creates the file, so that one that cannot be written is found before the evaluation.

        Raises:
          InputError: a file cannot be created at this path.
        """
        made = cls(path)
        made._create()
        try:
            yield made
        finally:
            made._close()

    def write(self, predictions: Iterable[dict[str, Any]]) -> None:
        """Appends predictions; they are in the file when the call returns."""
        if self.path is None or self.error is not None:
            return
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in predictions]
        with self._catch():
            if self._file is None:
                self._kept += lines
            else:
                _write_all(self._file, "".join(lines).encode())

    def read(self) -> Iterator[dict[str, Any]]:
        """The written predictions; none after an error."""
        if self.path is None or self.error is not None:
            return
        with local_to_read(self.path) as local, Path(local).open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def _create(self) -> None:
        if self.path is None:
            return
        try:
            if not files.is_local(self.path):
                files.write_bytes(self.path, b"")
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._closed.enter_context(FileIO(self.path, "wb"))
        except OSError as error:
            raise InputError(
                "the predictions cannot be written",
                where=self.path,
                expected="the path of a file, in a folder with write permission",
                found=error.strerror or error,
                fix="give the path of another file: --predictions=FILE",
            ) from error

    def _close(self) -> None:
        if self._file is not None:
            with self._catch():
                self._closed.close()
        elif self.path is not None and self.error is None:
            with self._catch():
                files.write_bytes(self.path, "".join(self._kept).encode())

    @contextlib.contextmanager
    def _catch(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            log.warning("the predictions cannot be written any more: %s", error)


def _write_all(file: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:  # a write without a buffer may be partial
        view = view[file.write(view) :]
