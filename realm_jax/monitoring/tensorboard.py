"""Event files for TensorBoard, without TensorFlow: `tensorboard --logdir=W/logs/tensorboard`."""

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

_EVERY = (
    30.0  # seconds between two writes of an event file to an object store, which takes it whole
)


class TensorBoard:
    """The numbers of each record as scalars named STAGE/FIGURE.

    Each life of a stage has a file of its own. One that resumes takes back what the last one wrote
    beyond its checkpoint.
    """

    def __init__(self, run: RunDir, stage: str):
        folder = run.logs / "tensorboard" / stage
        folder.mkdir(parents=True, exist_ok=True)
        if not files.is_local(folder):
            register_writer_factory(os.fspath(folder).split(":")[0], _ObjectStore)
        self._file = EventsWriter(os.fspath(folder / "events"), f".{os.getpid()}.{time.time_ns()}")
        self._begun = False

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

    def at(self, step: int) -> None:
        """Notes where this life begins, so that TensorBoard drops what it does again."""
        if not self._begun:
            start = SessionLog(status=SessionLog.START)
            self._file.write_event(Event(wall_time=time.time(), step=step, session_log=start))
            self._begun = True

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """The figures of a record that are numbers."""
    return {
        name: float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and name not in ("step", "time")
    }


class _ObjectStore:
    """A file that is written whole, now and then and at the end."""

    def __init__(self, path: str):
        self._path, self._data, self._written = epath.Path(path), bytearray(), -_EVERY

    @classmethod
    def open(cls, path: str) -> "_ObjectStore":
        return cls(path)

    @staticmethod
    def directory_check(path: str) -> None:
        """An object store has no folders to make."""

    def write(self, data: bytes) -> None:
        self._data += data

    def flush(self) -> None:
        if time.monotonic() - self._written > _EVERY:
            self.close()
            self._written = time.monotonic()

    def close(self) -> None:
        self._path.write_bytes(bytes(self._data))
