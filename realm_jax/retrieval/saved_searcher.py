"""A saved searcher that is in memory only while it is searched."""

import shutil
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32

from realm_jax.retrieval.searcher import load_searcher
from realm_jax.retrieval.searcher_files import read_description


class SavedSearcher:
    """Loads the searcher for each search, so that an index of many segments fits into memory.

    Args:
      folder: local, of a saved searcher.
    """

    bytes = 0

    def __init__(self, folder: Path):
        self._folder, description = folder, read_description(folder)
        self.kind: str = description["kind"]
        self.size: int = description["size"]
        self.dims: int = description["dims"]

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`."""
        return load_searcher(self._folder).search(queries, k)

    def widen(self) -> bool:
        """Returns False: the saved files are not changed."""
        return False

    def save(self, folder: Path) -> None:
        """Copies the files, unless they are there."""
        if not folder.exists() or not folder.samefile(self._folder):
            shutil.copytree(self._folder, folder, dirs_exist_ok=True)
