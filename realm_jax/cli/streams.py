"""Standard streams that are closed, have another encoding, or lose their reader."""

import io
import os
import select
import sys
from typing import Any


def prepare_streams() -> None:
    """Makes stdout and stderr usable whatever the caller has closed and whatever their encoding.

    A closed stream is replaced by the null device, before a file gets its number. Characters that
    the encoding of a stream lacks are written as escapes.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_unicode(stream: Any) -> bool:
    """Whether a stream can write every character."""
    return (stream.encoding or "utf-8").lower().replace("-", "").startswith("utf")


def reader_has_gone() -> bool:
    """Whether the reader of stdout has ended, as `head` does; if so, later output is dropped."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)  # errors are always reported
    if not poller.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
