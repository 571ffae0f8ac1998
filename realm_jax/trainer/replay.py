"""Replays a saved batch on the newest checkpoint of its stage: `realm train --replay=FILE`."""

import math
import threading
from typing import Any

import jax
from etils import epath
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import InputError
from realm_jax.models.modules import Parameters
from realm_jax.parallel.sharding import batch_sharding
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import Checkpoints, final_params
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.init_params import initial_params, load_start_params
from realm_jax.trainer.inputs import Inputs, open_inputs
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.nonfinite import read_batch
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.prepare import STAGES, open_mesh
from realm_jax.trainer.reader_stage import ReaderStage
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.resume import check_run_config
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import abstract_state, make_state
from realm_jax.trainer.step import make_step


def replay(workdir: str, config: ConfigDict, path: epath.PathLike) -> dict[str, Any]:
    """Trains one step on a saved batch, from the newest checkpoint, with the same dropout masks.

    If all metrics are finite, the params became non-finite between that checkpoint and the batch.

    Returns:
      `stage`, `step`, `checkpoint_step` (0: initial params), `figures` (metrics; a number, "nan" or
      "inf"), and `parameters_not_finite`, names of params that are not finite after the step.

    Raises:
      InputError: no such file, or a batch of a stage that cannot be replayed.
      DamageError: the file is not a saved batch.
    """
    name, step, batch = read_batch(path)
    run_dir, inputs, mesh = RunDir(workdir), open_inputs(config), open_mesh(config)
    check_run_config(run_dir, config)
    stages = _stages(run_dir, config, inputs)
    if name not in stages:
        raise InputError(
            f"a batch of stage {name} cannot be replayed",
            where=path,
            expected=", ".join(stages),
            found=name,
        )
    result = _step(run_dir, config, stages[name], mesh, step, batch)
    return {"stage": name, "step": step, **result}


def _stages(run_dir: RunDir, config: ConfigDict, inputs: Inputs) -> dict[str, Stage]:
    """The stages whose batches can be replayed, which needs no index."""
    store, text = inputs.knowledge, inputs.text
    index = IndexManager(
        run_dir, config, Knowledge(store, config).accepts, [], set, threading.Event()
    )
    realm = RealmStage(config, store, text, inputs.held_out, index)
    stages: tuple[Stage, ...] = (
        IctStage(config, store),
        ReaderStage(config, store, text),
        realm,
    )
    return {stage.name: stage for stage in stages}


def _params_before(run_dir: RunDir, config: ConfigDict, stage: Stage, mesh: Mesh) -> Parameters:
    """The params that earlier stages have trained, or else those of a new run."""
    size = PassageStore.open(config.corpus.knowledge).vocabulary.size
    params = dict(load_start_params(config, size))
    for earlier in STAGES[: STAGES.index(stage.name)]:
        finished = final_params(run_dir, earlier)
        params |= {} if finished is None else finished[1]
    start = {name: params[name] for name in stage.modules.names if name in params}
    without_ict = stage.name == "realm" and commit.latest(run_dir.checkpoints("ict")) is None
    copied = config.stages.ict.from_reader and (stage.name == "ict" or without_ict)
    if copied and "reader" in params:
        embedder = start.get("embedder") or stage.modules.shapes["embedder"]
        start["embedder"] = {**embedder, "bert": params["reader"]["bert"]}
    return initial_params(config, stage.modules, start, mesh)


def _step(
    run_dir: RunDir,
    config: ConfigDict,
    stage: Stage,
    mesh: Mesh,
    step: int,
    batch: Any,
) -> dict[str, Any]:
    optimizer = make_optimizer(config.optimizer, stage.settings)
    as_json = config_lib.to_json(config, run_dir.workdir)
    checkpoints = Checkpoints(run_dir, stage.name, config.checkpoint.keep, as_json, mesh)
    newest, before = checkpoints.newest(), _params_before(run_dir, config, stage, mesh)
    if newest is None:
        state = make_state(stage.modules, optimizer, mesh, before, stage.reference)
    else:
        like = abstract_state(stage.modules, optimizer, mesh, stage.reference)
        reference = {name: before[name] for name in stage.reference}
        state, _ = checkpoints.restore(newest, like, reference)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    batch_step = jax.device_put(jax.numpy.asarray(step, state.step.dtype), state.step.sharding)
    micro_batches = config.optimizer.accumulate_steps
    step_function = make_step(stage, optimizer, mesh, shardings, config.seed, micro_batches)
    checkpoint_step = int(state.step)
    after, metrics = step_function(
        state._replace(step=batch_step), jax.device_put(batch, batch_sharding(mesh))
    )
    not_finite = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(after.parameters)
        if not bool(jax.numpy.isfinite(leaf).all())
    ]
    values = {name: float(value) for name, value in jax.device_get(metrics).items()}
    return {
        "checkpoint_step": checkpoint_step,
        "figures": {k: v if math.isfinite(v) else str(v) for k, v in sorted(values.items())},
        "parameters_not_finite": not_finite,
    }
