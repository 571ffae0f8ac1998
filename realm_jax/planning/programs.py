"""Lowers the programs of both jobs for devices that this machine need not have.

States and batches are abstract: shape, dtype and sharding only. Stages, optimizer, step and
shardings are those of a run.
"""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, Sharding
from ml_collections import ConfigDict

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.rows import passage_rows
from realm_jax.errors import ConfigError
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import (
    batch_sharding,
    check_batches,
    packing_groups,
    param_shardings,
)
from realm_jax.planning.dummy_corpus import write_dummy_corpus
from realm_jax.planning.flops import embed_flops, train_flops
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import TrainState, state_shardings, stream_key
from realm_jax.trainer.step import make_step


class Program(NamedTuple):
    """A lowered program.

    Attributes:
      name: name of the stage, or `embed`.
      lowered: the lowered program, to compile.
      rows: queries or passages per call, over all devices.
      flops: FLOPs per call over all devices, computed from the config.
      parameter_bytes: size of all parameters in float32.
    """

    name: str
    lowered: Any
    rows: int
    flops: float
    parameter_bytes: int


def train_program(config: ConfigDict, mesh: Mesh, vocabulary: int) -> Program:
    """Lowers the training step of REALM, or of ICT if the config has no REALM steps.

    Args:
      config: of the run; its corpora are not opened.
      mesh: of the trainer.
      vocabulary: V, size of the vocabulary.

    Raises:
      ConfigError: neither stage has steps, or the mesh does not divide the batch.
    """
    name = "realm" if config.stages.realm.steps else "ict"
    settings = config.stages[name]
    if not settings.steps:
        raise ConfigError(
            "no stage to compile",
            where="config.stages.realm.steps and config.stages.ict.steps",
            expected="more than 0 in one of them",
            found=0,
        )
    parts = config.optimizer.accumulate_steps
    check_batches(mesh, {f"stages.{name}.batch": settings.batch}, parts)
    with tempfile.TemporaryDirectory() as folder:
        store, spans = write_dummy_corpus(Path(folder), vocabulary)
        make = _realm if name == "realm" else _ict
        stage, batch = make(config, store, spans, Path(folder), packing_groups(mesh, config))
    optimizer = make_optimizer(config.optimizer, settings)

    def initial_state() -> TrainState:
        params = stage.modules.init(stream_key(config.seed, "init"))
        return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    shapes = jax.eval_shape(initial_state)
    shardings = state_shardings(stage.modules, optimizer, mesh, shapes)
    state = jax.tree.map(_abstract, shapes, shardings)
    step: Any = make_step(stage, optimizer, mesh, shardings, config.seed, parts)
    lowered = step.lower(state, _abstract_tree(batch, batch_sharding(mesh)))
    flops = train_flops(config, name, vocabulary)
    return Program(name, lowered, settings.batch, flops, _bytes(stage.modules.shapes))


def embed_program(config: ConfigDict, mesh: Mesh, vocabulary: int) -> Program:
    """Lowers the builder's program: passages of maximum length to vectors.

    Parameters are replicated; each device embeds one batch of `builder.batch_pieces` word pieces.
    """
    length = config.lengths.passage
    rows = max(1, config.builder.batch_pieces // length) * mesh.size
    modules = Modules(config.model, vocabulary, ("embedder",))
    shardings = param_shardings(mesh, modules.axes, modules.shapes)
    params = jax.tree.map(_abstract, modules.shapes, shardings)["embedder"]
    with tempfile.TemporaryDirectory() as folder:
        store, _ = write_dummy_corpus(Path(folder), vocabulary)
        batch = passage_rows(store, np.zeros(rows, np.int64), length)
    embed: Any = Encoder(config, vocabulary).program
    lowered = embed.lower(params, _abstract_tree(batch, batch_sharding(mesh)))
    return Program("embed", lowered, rows, embed_flops(config, rows), _bytes(modules.shapes))


def _realm(
    config: ConfigDict, store: PassageStore, spans: SpanStore, folder: Path, count: int
) -> tuple[Stage, Any]:
    text = MaskedTextSource(store, spans, config)
    index = IndexManager(RunDir(str(folder)), config, store.corpus_hash, [], set)
    stage = RealmStage(config, store, text, text, index)
    size = stage.settings.batch
    hits = np.zeros((size, config.retrieval.candidates), np.int64)
    return stage, stage.with_candidates(text.batch(0, size), hits, size // count)


def _ict(
    config: ConfigDict, store: PassageStore, spans: SpanStore, folder: Path, count: int
) -> tuple[Stage, Any]:
    stage = IctStage(config, store, count, usual=False)
    return stage, stage.batch(0)


def _abstract_tree(tree: Any, sharding: Sharding) -> Any:
    return jax.tree.map(lambda leaf: _abstract(leaf, sharding), tree)


def _abstract(leaf: Any, sharding: Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
