"""Float32 arrays in memory-mapped files: their pages may leave memory while an index is built."""

import os
import tempfile
from io import FileIO
from pathlib import Path

import numpy as np
from jaxtyping import Float32

_BLOCK = 1 << 24  # bytes written at a time where the system cannot allocate a file


def temporary_array(
    shape: tuple[int, int], folder: Path | None = None
) -> Float32[np.ndarray, "N E"]:
    """Maps a new file that is deleted when the array is.

    Args:
      shape: [N, E].
      folder: for the file; None: the folder for temporary files (TMPDIR).
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return map_array(file, shape)


def open_or_create(path: Path) -> FileIO:
    """Opens a file to read and write it, without truncating it."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)


def map_array(file: FileIO, shape: tuple[int, int]) -> Float32[np.ndarray, "N E"]:
    """Maps a file as an array without a header, and grows the file to its size.

    All disk blocks are allocated first: on a full disk this raises OSError, whereas a write to an
    unallocated page of a map would kill the process (SIGBUS).

    Args:
      file: open for reading and writing.
      shape: [N, E].
    """
    _allocate(file, 4 * shape[0] * shape[1])
    return np.memmap(file, np.float32, "r+", shape=shape)


def _allocate(file: FileIO, size: int) -> None:
    """Grows a file to `size` bytes of allocated blocks; bytes that it has already are kept."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    start = file.seek(0, os.SEEK_END)
    for begin in range(start, size, _BLOCK):
        file.write(bytes(min(_BLOCK, size - begin)))
