"""Embeds the whole corpus shard by shard, so that a killed builder resumes at its last shard."""

import threading
from collections.abc import Callable

import numpy as np
from etils import epath
from jaxtyping import Float32
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.errors import Stopped
from realm_jax.index_builder.shards import Shards, open_shards
from realm_jax.storage import files
from realm_jax.storage.locks import Lock

Embed = Callable[[np.ndarray], Float32[np.ndarray, "S E"]]


def embed_corpus(
    config: ConfigDict,
    store: PassageStore,
    embed: Embed,
    folder: epath.Path,
    stop: threading.Event,
    progress: Callable[[int], None],
    is_published: Callable[[], bool] = lambda: False,
) -> Float32[np.ndarray, "N E"] | None:
    """Embeds all passages; finished shards in `folder` are reused.

    Several builders may do this at once: each locks the shards that it embeds, and takes over
    those of builders that died.

    Args:
      config: of the snapshot.
      store: the knowledge corpus.
      embed: passage ids to vectors, with the embedder of the snapshot.
      folder: holds the finished shards; see `shards`.
      stop: checked between shards.
      progress: called with the number of passages done.
      is_published: whether another builder has published this index or a newer one; asked when a
        shard is missing, because that builder then deletes all shards.

    Returns:
      Vectors [N, E], memory-mapped; None if another builder has published.

    Raises:
      Stopped: when `stop` is set.
    """
    with open_shards(folder, len(store), config.model.embedding) as shards:
        todo, done = list(range(0, len(store), config.builder.shard)), 0
        while todo:
            locked_by_others = []
            for start in todo:
                if stop.is_set():
                    raise Stopped("embed")
                ids = np.arange(start, min(start + config.builder.shard, len(store)))
                finished = shards.load(start, start + len(ids))
                if not finished and is_published():
                    files.delete_tree(folder)
                    return None
                if not finished and not _embed_shard(shards, folder, ids, embed):
                    locked_by_others.append(start)
                    continue
                done += len(ids)
                progress(done)
            if locked_by_others == todo:
                stop.wait(config.builder.poll_seconds)
            todo = locked_by_others
        return shards.vectors


def _embed_shard(shards: Shards, folder: epath.Path, ids: np.ndarray, embed: Embed) -> bool:
    """Embeds and stores a shard; False if another builder has locked it."""
    lock = Lock(folder, f"shard_{ids[0]:010d}")
    if not lock.acquire():
        return False
    with lock.renewed():
        shards.save(int(ids[0]), embed(ids))
    return True
