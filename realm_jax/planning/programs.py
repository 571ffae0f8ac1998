"""The programs that the two jobs run, lowered for devices that need not be there.

Nothing is computed: states and batches are described by shape, dtype and place. The stages, the
optimiser, the step and the shardings are those of a run.
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
    """A lowered step.

    Attributes:
      name: of the stage, or `embed`.
      lowered: to compile.
      rows: queries, or passages, that one call takes over all devices.
      flops: asked for by one call over all devices, counted on paper.
      parameter_bytes: of all parameters, in float32.
    """

    name: str
    lowered: Any
    rows: int
    flops: float
    parameter_bytes: int


def train_program(config: ConfigDict, mesh: Mesh, vocabulary: int) -> Program:
    """The full training step of REALM, or of ICT where a config has no steps of REALM.

    Args:
      config: of the run; corpora are not opened.
      mesh: of the trainer.
      vocabulary: V.

    Raises:
      ConfigError: neither stage has steps, or the batch does not divide over the mesh.
    """
    name = "realm" if config.stages.realm.steps else "ict"
    settings = config.stages[name]
    if not settings.steps:
        raise ConfigError(
            "nothing to compile",
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

    def fresh() -> TrainState:
        parameters = stage.modules.init(stream_key(config.seed, "init"))
        return TrainState(jnp.zeros((), jnp.int32), parameters, optimizer.init(parameters))

    shapes = jax.eval_shape(fresh)
    places = state_shardings(stage.modules, optimizer, mesh, shapes)
    state = jax.tree.map(_described, shapes, places)
    step: Any = make_step(stage, optimizer, mesh, places, config.seed, parts)
    lowered = step.lower(state, _all_described(batch, batch_sharding(mesh)))
    flops = train_flops(config, name, vocabulary)
    return Program(name, lowered, settings.batch, flops, _bytes(stage.modules.shapes))


def embed_program(config: ConfigDict, mesh: Mesh, vocabulary: int) -> Program:
    """The builder's step: passages of full length to vectors, parameters on every device.

    Each device takes the rows of one embedding batch (`builder.batch_pieces`).
    """
    length = config.lengths.passage
    rows = max(1, config.builder.batch_pieces // length) * mesh.size
    modules = Modules(config.model, vocabulary, ("embedder",))
    places = param_shardings(mesh, modules.axes, modules.shapes)
    parameters = jax.tree.map(_described, modules.shapes, places)["embedder"]
    with tempfile.TemporaryDirectory() as folder:
        store, _ = write_dummy_corpus(Path(folder), vocabulary)
        batch = passage_rows(store, np.zeros(rows, np.int64), length)
    embed: Any = Encoder(config, vocabulary).program
    lowered = embed.lower(parameters, _all_described(batch, batch_sharding(mesh)))
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


def _all_described(tree: Any, place: Sharding) -> Any:
    return jax.tree.map(lambda leaf: _described(leaf, place), tree)


def _described(leaf: Any, place: Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
