"""Lowers the programs of the training stages: first state, step, evaluation, restore, gather."""

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import QuestionSource
from realm_jax.data.question_checks import Question
from realm_jax.parallel.connections import connect_program
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import (
    batch_sharding,
    check_batches,
    gather_program,
    packing_groups,
    param_shardings,
)
from realm_jax.planning.dummy_corpus import write_dummy_corpus
from realm_jax.planning.flops import evaluation_flops, recomputed_flops, train_flops
from realm_jax.planning.lowered import LoweredProgram, Target, abstract, lowered, num_bytes
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.distance import reference_modules
from realm_jax.trainer.evaluation import make_evaluation
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.init_params import init_program, run_modules
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.qa_stage import QaStage
from realm_jax.trainer.reader_stage import ReaderStage
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import TrainState, abstract_state, state_program
from realm_jax.trainer.step import make_step


def train(target: Target, name: str) -> LoweredProgram:
    """Lowers the training step of a stage, with rows of maximum length."""
    target = _divided(target, name)
    config, mesh = target.config, target.mesh
    stage, batch, state = _stage(target, name)
    optimizer = make_optimizer(config.optimizer, stage.settings)
    shardings = _shardings(state)
    parts = config.optimizer.accumulate_steps
    step: Any = make_step(stage, optimizer, mesh, shardings, config.seed, parts)
    return lowered(
        step,
        (state, abstract(batch, batch_sharding(mesh))),
        mesh,
        rows=stage.settings.batch,
        flops=train_flops(config, name, target.vocabulary),
        recomputed_flops=recomputed_flops(config, name, target.vocabulary),
        parameter_bytes=num_bytes(stage.modules.shapes),
    )


def evaluate(target: Target, name: str) -> LoweredProgram:
    """Lowers the evaluation of a stage."""
    stage, batch, state = _stage(target, name)
    program = make_evaluation(stage, target.mesh, target.config.optimizer.accumulate_steps)
    return lowered(
        program,
        (state.parameters, abstract(batch, batch_sharding(target.mesh))),
        target.mesh,
        rows=stage.settings.batch,
        flops=evaluation_flops(target.config, name, target.vocabulary),
        parameter_bytes=num_bytes(stage.modules.shapes),
    )


def init(target: Target) -> LoweredProgram:
    """Lowers the program that draws all params of a run."""
    modules = run_modules(target.config, target.vocabulary)
    shardings = param_shardings(target.mesh, modules.axes, modules.shapes)
    all_drawn = [True] * len(jax.tree.leaves(shardings))
    program = init_program(modules, target.config.seed, shardings, all_drawn)
    return lowered(program, (), target.mesh, parameter_bytes=num_bytes(modules.shapes))


def state(target: Target) -> LoweredProgram:
    """Lowers the program from params to the first state, for the modules of all stages."""
    like, optimizer = _state(target)
    program = state_program(optimizer, _shardings(like))
    return lowered(program, (like.parameters,), target.mesh)


def restore(target: Target) -> LoweredProgram:
    """Measures a restored state: the shards of a checkpoint are copied to the devices.

    No program runs. The compiler lays out the arrays of the state as they are in memory.
    """
    like, _ = _state(target)
    layout = Program("restore", lambda state: state, donate_argnums=0)
    return lowered(layout, (like,), target.mesh)


def connect(target: Target) -> LoweredProgram:
    """Lowers the sums that connect the devices of several hosts."""
    return lowered(connect_program(target.mesh), (), target.mesh)


def gather(target: Target) -> LoweredProgram:
    """Lowers the copy of the largest param to every device, for snapshots and exports."""
    like, _ = _state(target)
    largest = max(jax.tree.leaves(like.parameters), key=lambda leaf: leaf.size)
    return lowered(gather_program(target.mesh), (largest,), target.mesh)


def _divided(target: Target, name: str) -> Target:
    """The target with a fine-tuning batch that divides over the devices, as `realm finetune` asks.

    The paper's batch of one question divides over one device only.
    """
    if name != "qa":
        return target
    parts = target.mesh.size // target.mesh.shape["model"]
    parts *= target.config.optimizer.accumulate_steps
    config = target.config.copy_and_resolve_references()
    with config.unlocked():
        config.stages.qa.batch = -(-config.stages.qa.batch // parts) * parts
    return target._replace(config=config)


def _stage(target: Target, name: str) -> tuple[Stage, Any, TrainState]:
    """A stage, its batch with the shapes of a run, and its abstract state."""
    config, mesh = target.config, target.mesh
    settings = config.stages[name]
    parts = config.optimizer.accumulate_steps
    check_batches(mesh, {f"stages.{name}.batch": settings.batch}, parts)
    make = {"reader": _reader, "ict": _ict, "realm": _realm, "qa": _qa}[name]
    with tempfile.TemporaryDirectory() as folder:
        stage, batch = make(target, Path(folder))
    optimizer = make_optimizer(config.optimizer, settings)
    return stage, batch, abstract_state(stage.modules, optimizer, mesh, stage.reference)


def _not_fitted(config: ConfigDict) -> ConfigDict:
    """A config with which each batch has the largest shape."""
    config = ConfigDict(config.to_dict())
    config.lengths.fitted = False
    return config


def _reader(target: Target, folder: Path) -> tuple[Stage, Any]:
    config = _not_fitted(target.config)
    store, spans = write_dummy_corpus(folder, target.vocabulary)
    text = MaskedTextSource(store, spans, config)
    stage = ReaderStage(config, store, text, packing_groups(target.mesh, config))
    return stage, stage.batch(0)


def _ict(target: Target, folder: Path) -> tuple[Stage, Any]:
    config = _not_fitted(target.config)
    store, _ = write_dummy_corpus(folder, target.vocabulary)
    stage = IctStage(config, store, packing_groups(target.mesh, config))
    return stage, stage.batch(0)


def _realm(target: Target, folder: Path) -> tuple[Stage, Any]:
    config = target.config
    store, spans = write_dummy_corpus(folder, target.vocabulary)
    text = MaskedTextSource(store, spans, config)
    index = IndexManager(RunDir(str(folder)), config, Knowledge(store, config).accepts, [], set)
    stage = RealmStage(config, store, text, text, index)
    size = stage.settings.batch
    hits = np.zeros((size, config.retrieval.candidates), np.int64)
    groups = packing_groups(target.mesh, config)
    return stage, stage.with_candidates(text.batch(0, size), hits, size // groups)


def _qa(target: Target, folder: Path) -> tuple[Stage, Any]:
    config = target.config
    store, _ = write_dummy_corpus(folder, target.vocabulary)
    questions = [Question("What is the capital of Ora?", ("Ube",))] * config.stages.qa.batch
    hits = np.zeros((len(questions), config.stages.qa.retriever_passages), np.int64)
    vectors = np.zeros((1, config.model.embedding), np.float16)
    source = QuestionSource(questions, hits, vectors, store, config)
    stage = QaStage(config, target.vocabulary, source)
    return stage, stage.batch(0)


def _state(target: Target) -> tuple[TrainState, Any]:
    """The abstract state of all modules of a run, which is at least that of any stage."""
    config = target.config
    modules = run_modules(config, target.vocabulary)
    optimizer = make_optimizer(config.optimizer, config.stages.realm)
    stages = config.stages
    reference = reference_modules(stages.realm) or reference_modules(stages.ict)
    return abstract_state(modules, optimizer, target.mesh, reference), optimizer


def _shardings(state: TrainState) -> TrainState:
    return jax.tree.map(lambda leaf: leaf.sharding, state)
