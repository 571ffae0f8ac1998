"""Arrays that are too large for memory, and that nobody will need again."""

import tempfile
from pathlib import Path

import numpy as np
from jaxtyping import Float32


def scratch(shape: tuple[int, ...], folder: Path | None = None) -> Float32[np.ndarray, "N E"]:
    """An array in a file that is gone with it: its pages may leave memory while an index is built.

    Its place on the disk is taken first, since a full disk would be met as a crash afterwards.

    Args:
      shape: [N, E].
      folder: for the file; None is that for temporary files (TMPDIR).
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(shape[0]):
            file.write(bytes(4 * shape[1]))
        file.flush()
        return np.memmap(file, np.float32, "r+", shape=shape)
