"""A run folder as a finished run leaves it, with random weights: seconds instead of minutes."""

import jax
import numpy as np
from etils import epath
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.export import publish_export
from realm_jax.artifacts.published_index import publish_index
from realm_jax.models.modules import Modules, Parameters
from realm_jax.retrieval.encoder import PassageEmbedder
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage import files, follow
from realm_jax.storage.layout import RunDir
from support.tiny_corpus import TinyCorpus

STEP = 4  # of the last snapshot, of its index, and so of the export


def write_finished_run(
    workdir: epath.PathLike,
    land: TinyCorpus,
    config: ConfigDict,
    *,
    tuned: bool = True,
    rows: Int64[np.ndarray, "N"] | None = None,
) -> RunDir:
    """Publishes an index of `land` and an export that belongs to it, and marks the end.

    Args:
      workdir: a new folder.
      land: the knowledge corpus; `config` names it.
      config: of the run.
      tuned: with the networks that answer questions, not only those that fill blanks.
      rows: the passages in the order of the index; None is as they lie in the corpus.
    """
    run = RunDir(workdir)
    as_json = config_lib.to_json(config)
    files.write_bytes(run.config, as_json.encode())
    networks = random_networks(config, land.store.vocabulary.size)
    publish_random_index(run, land, config, networks["embedder"], rows=rows)
    if not tuned:
        networks = {name: networks[name] for name in ("embedder", "reader")}
    publish_export(run, STEP, STEP, networks, as_json)
    follow.mark_end(run, step=STEP)
    return run


def random_networks(config: ConfigDict, vocabulary: int) -> Parameters:
    """All networks that an export can hold."""
    names = ("embedder", "reader", "span_head")
    init = jax.jit(Modules(config.model, vocabulary, names).init)
    drawn = jax.device_get(init(jax.random.key(config.seed)))
    other = jax.device_get(init(jax.random.key(config.seed + 1)))
    tuned = {"question_embedder": other["embedder"], "question_reader": other["reader"]}
    return drawn | tuned


def publish_random_index(
    run: RunDir,
    land: TinyCorpus,
    config: ConfigDict,
    embedder: Parameters,
    step: int = STEP,
    rows: Int64[np.ndarray, "N"] | None = None,
) -> None:
    """An index of all passages as `embedder` sees them."""
    rows = np.arange(len(land.store), dtype=np.int64) if rows is None else rows
    vectors = PassageEmbedder(config, land.store, embedder).vectors(rows)
    searcher = build_searcher("exact", vectors, config.search, config.seed)
    fields = {"snapshot_step": step, "corpus_hash": land.store.corpus_hash, "recall": 1.0}
    as_json = config_lib.to_json(config)
    publish_index(run, step, searcher, rows, vectors, embedder, fields, as_json)
