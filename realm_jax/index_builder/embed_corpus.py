"""The whole corpus to vectors, shard by shard, so that a killed builder goes on where it was."""

import logging
import threading
from collections.abc import Callable

import numpy as np
from etils import epath
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.exchange import files
from realm_jax.failpoints import reach
from realm_jax.search.passage_vectors import PassageEmbedder

log = logging.getLogger(__name__)


class Stopped(Exception):
    """The stop signal came; finished shards stay."""


def embed_corpus(
    config: ConfigDict,
    store: PassageStore,
    embedder: PassageEmbedder,
    folder: epath.Path,
    stop: threading.Event,
    progress: Callable[[int], None],
) -> Float32[np.ndarray, "N E"]:
    """Vectors of all passages; shards already in `folder` are taken as they are.

    Args:
      config: of the snapshot.
      store: the knowledge corpus.
      embedder: with the snapshot's parameters.
      folder: holds one file and one sealed mark per finished shard.
      stop: checked between shards.
      progress: called with the number of passages done.

    Raises:
      Stopped: when `stop` is set.
    """
    vectors = np.empty((len(store), config.model.embedding), np.float32)
    for start in range(0, len(store), config.builder.shard):
        if stop.is_set():
            raise Stopped
        rows = np.arange(start, min(start + config.builder.shard, len(store)))
        path = folder / f"shard_{start:010d}.npy"
        done = _read_shard(path, len(rows), vectors.shape[1])
        if done is None:
            done = embedder.vectors(rows)
            _write_shard(path, done)
        vectors[rows] = done
        progress(int(rows[-1]) + 1)
    return vectors


def _write_shard(path: epath.Path, vectors: Float32[np.ndarray, "S E"]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_array(path, vectors)
    files.write_sealed(_mark(path), files.digest(path, sync=True))
    reach("shard.embedded")


def _read_shard(path: epath.Path, size: int, dims: int) -> Float32[np.ndarray, "S E"] | None:
    """A finished shard; None if it is missing, unfinished or not as its mark says."""
    promised = files.read_sealed(_mark(path)) if path.exists() else None
    if promised is None or files.digest(path) != promised:
        return None
    with path.open("rb") as file:
        vectors = np.load(file)
    return vectors if vectors.shape == (size, dims) else None


def _mark(path: epath.Path) -> epath.Path:
    return path.with_name(path.name + ".json")
