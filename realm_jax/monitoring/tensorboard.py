"""Event files for TensorBoard, without TensorFlow: `tensorboard --logdir=W/logs/tensorboard`.

tensorboardX's `SummaryWriter` is not used: it writes in a background thread, so after a write error
(full disk) its queue fills and the trainer would block.
"""

import os
import time
from typing import Any

from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import register_writer_factory

from realm_jax.storage import files
from realm_jax.storage.layout import RunDir

# An object store replaces whole objects, so each upload sends the whole event file: there a new
# file is started from time to time, and an upload does not become larger as the run goes on.
_UPLOAD_EVERY = 30.0  # seconds
_FRAME_BYTES = 16  # of an event: its length and two checksums
_FILE_BYTES = 1 << 20  # after which a new event file is started on an object store


class TensorBoard:
    """Writes the numbers of each record as scalars named STAGE/METRIC.

    Each process writes its own file. When a stage resumes, the first event makes TensorBoard drop
    what the previous process wrote after its last checkpoint.
    """

    def __init__(self, run: RunDir, stage: str):
        self._folder = run.logs / "tensorboard" / stage
        self._folder.mkdir(parents=True, exist_ok=True)
        self._local = files.is_local(self._folder)
        if not self._local:
            register_writer_factory(os.fspath(self._folder).split(":")[0], _ObjectStoreFile)
        self._file, self._size = self._open(), 0
        self._started = False

    def _open(self) -> EventsWriter:
        """A new event file; names are sorted by time."""
        suffix = f".{os.getpid()}.{time.time_ns()}"
        return EventsWriter(os.fspath(self._folder / "events"), suffix)

    def write(self, record: dict[str, Any]) -> None:
        """Appends an event."""
        stage, step, seconds = record["stage"], record["step"], record["time"]
        values = [
            Summary.Value(tag=f"{stage}/{name}", simple_value=value)
            for name, value in scalars(record).items()
        ]
        event = Event(wall_time=seconds, step=step, summary=Summary(value=values))
        self._file.write_event(event)
        self._file.flush()
        self._size += event.ByteSize() + _FRAME_BYTES
        if self._size > _FILE_BYTES and not self._local:
            self._file.close()
            self._file, self._size = self._open(), 0

    def set_step(self, step: int) -> None:
        """At the first call, marks events of `step` and later in older files as replaced."""
        if not self._started:
            start = SessionLog(status=SessionLog.START)
            self._file.write_event(Event(wall_time=time.time(), step=step, session_log=start))
            self._started = True

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """The metrics of a record that are numbers."""
    return {
        name: float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and name not in ("step", "time")
    }


class _ObjectStoreFile:
    """A file that is uploaded whole: at intervals and when it is closed."""

    def __init__(self, path: str):
        self._path, self._data, self._uploaded = epath.Path(path), bytearray(), -_UPLOAD_EVERY

    @classmethod
    def open(cls, path: str) -> "_ObjectStoreFile":
        return cls(path)

    @staticmethod
    def directory_check(path: str) -> None:
        """Does nothing: an object store has no folders."""

    def write(self, data: bytes) -> None:
        self._data += data

    def flush(self) -> None:
        if time.monotonic() - self._uploaded > _UPLOAD_EVERY:
            self.close()
            self._uploaded = time.monotonic()

    def close(self) -> None:
        self._path.write_bytes(bytes(self._data))
