"""Writes the run folder of a finished run with random weights, in seconds instead of minutes."""

import jax
import numpy as np
from etils import epath
from jaxtyping import Int64
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.export import publish_export
from realm_jax.artifacts.published_index import publish_index
from realm_jax.corpus.fingerprints import fingerprints
from realm_jax.models.modules import Modules, Parameters
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage import files, follow
from realm_jax.storage.layout import RunDir
from support.probes import publish_with_probes
from support.tiny_corpus import TinyCorpus

STEP = 4  # of the snapshot, the published index and the export


def write_finished_run(
    workdir: epath.PathLike,
    corpus: TinyCorpus,
    config: ConfigDict,
    *,
    tuned: bool = True,
    rows: Int64[np.ndarray, "N"] | None = None,
    snapshot: bool = False,
) -> RunDir:
    """Publishes an index and an export of the same random weights, and marks the run as ended.

    Args:
      workdir: a new folder.
      corpus: the knowledge corpus that `config` names.
      config: config of the run.
      tuned: whether the export also holds the fine-tuned question-answering networks.
      rows: passage ids in the order of the index; None keeps the order of the corpus.
      snapshot: whether to publish the snapshot of the index too, from which it can be built again.
    """
    run = RunDir(workdir)
    as_json = config_lib.to_json(config, run.workdir)
    files.write_bytes(run.config, as_json.encode())
    params = random_params(config, corpus.store.vocabulary.size)
    publish_random_index(run, corpus, config, params["embedder"], rows=rows)
    if snapshot:
        publish_with_probes(run, STEP, config, params)
    if not tuned:
        params = {name: params[name] for name in ("embedder", "reader")}
    publish_export(run, STEP, STEP, params, as_json)
    follow.mark_end(run, step=STEP)
    return run


def random_params(config: ConfigDict, vocabulary: int) -> Parameters:
    """Returns random params of every network that an export can hold."""
    names = ("embedder", "reader", "span_head")
    init = jax.jit(Modules(config.model, vocabulary, names).init)
    params = jax.device_get(init(jax.random.key(config.seed)))
    other = jax.device_get(init(jax.random.key(config.seed + 1)))
    tuned = {"question_embedder": other["embedder"], "question_reader": other["reader"]}
    return params | tuned


def publish_random_index(
    run: RunDir,
    corpus: TinyCorpus,
    config: ConfigDict,
    embedder: Parameters,
    step: int = STEP,
    rows: Int64[np.ndarray, "N"] | None = None,
) -> None:
    """Publishes an exact index of all passages, embedded with the params `embedder`."""
    rows = np.arange(len(corpus.store), dtype=np.int64) if rows is None else rows
    vectors = Encoder(config, corpus.store.vocabulary.size).embed_passages(
        embedder, corpus.store, rows
    )
    searcher = build_searcher("exact", vectors, config.search, config.seed)
    of_corpus = {"corpus_hash": corpus.store.corpus_hash, "passages": len(rows)}
    fields = {"snapshot_step": step, **of_corpus, "recall": 1.0}
    as_json = config_lib.to_json(config, run.workdir)
    parts = (searcher, rows, vectors, embedder, fields, as_json)
    publish_index(run, step, *parts, fingerprints=fingerprints(corpus.store))
