"""The whole corpus to vectors, shard by shard, so that a killed builder goes on where it was."""

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from etils import epath
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.errors import DamageError, Stopped
from realm_jax.retrieval.encoder import PassageEmbedder
from realm_jax.retrieval.temp_array import scratch
from realm_jax.storage import files
from realm_jax.storage.failpoints import reach
from realm_jax.storage.locks import Claim

log = logging.getLogger(__name__)


def embed_corpus(
    config: ConfigDict,
    store: PassageStore,
    embedder: PassageEmbedder,
    folder: epath.Path,
    stop: threading.Event,
    progress: Callable[[int], None],
    over: Callable[[], bool] = lambda: False,
) -> Float32[np.ndarray, "N E"] | None:
    """Vectors of all passages; shards already in `folder` are taken as they are.

    Several builders may do this at once: each claims the shards it embeds, and takes over those of
    builders that died.

    Args:
      config: of the snapshot.
      store: the knowledge corpus.
      embedder: with the snapshot's parameters.
      folder: holds one file and one sealed mark per finished shard.
      stop: checked between shards.
      progress: called with the number of passages done.
      over: whether others have finished; asked when a shard is missing, for they delete all.

    Returns:
      None if others have finished.

    Raises:
      Stopped: when `stop` is set.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    shape = len(store), config.model.embedding
    # Not in `folder`, which others may delete at any moment.
    vectors = scratch(shape, Path(folder.parent) if files.is_local(folder) else None)
    todo, done = list(range(0, len(store), config.builder.shard)), 0
    while todo:
        others = []
        for start in todo:
            if stop.is_set():
                raise Stopped("embed")
            rows = np.arange(start, min(start + config.builder.shard, len(store)))
            path = folder / f"shard_{start:010d}.npy"
            shard = _read_shard(path, len(rows), config.model.embedding)
            if shard is None and over():
                return None
            if shard is None:
                shard = _embedded(path, rows, embedder)
            if shard is None:
                others.append(start)
                continue
            vectors[rows] = shard
            done += len(rows)
            progress(done)
        if others == todo:
            stop.wait(config.builder.poll_seconds)
        todo = others
    return vectors


def _embedded(
    path: epath.Path, rows: np.ndarray, embedder: PassageEmbedder
) -> Float32[np.ndarray, "S E"] | None:
    """A shard, embedded and kept; None while another builder is at it."""
    claim = Claim(path.parent, path.stem)
    if not claim.take():
        return None
    with claim.kept():
        vectors = embedder.vectors(rows)
        with contextlib.suppress(FileNotFoundError):  # others have finished, and deleted the folder
            _write_shard(path, vectors)
    return vectors


def _write_shard(path: epath.Path, vectors: Float32[np.ndarray, "S E"]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_array(path, vectors)
    files.write_sealed(_mark(path), files.digest(path, sync=True))
    reach("shard.embedded")


def _read_shard(path: epath.Path, size: int, dims: int) -> Float32[np.ndarray, "S E"] | None:
    """A finished shard; None if it is missing, unfinished, not as its mark says or just deleted."""
    try:
        promised = files.read_sealed(_mark(path)) if path.exists() else None
        if promised is None or files.digest(path) != promised:
            return None
        with path.open("rb") as file:
            vectors = np.load(file)
    except (DamageError, FileNotFoundError):
        return None
    return vectors if vectors.shape == (size, dims) else None


def _mark(path: epath.Path) -> epath.Path:
    return path.with_name(path.name + ".json")
