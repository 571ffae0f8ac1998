"""A saved batch run again, on the newest checkpoint of its stage: `realm train --replay=FILE`."""

import math
from typing import Any

import jax
from etils import epath
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import InputError
from realm_jax.models.modules import Parameters
from realm_jax.parallel.sharding import batch_sharding
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.nonfinite import read_batch
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.run import open_stages
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step


def replay(workdir: str, config: ConfigDict, path: epath.PathLike) -> dict[str, Any]:
    """The figures of a saved batch: one step from the newest checkpoint, with the dropout of then.

    Figures that are finite here say that the parameters went wrong before the batch did.

    Returns:
      `stage`, `step`, `checkpoint_step` (0: fresh parameters), `figures` (a number, or "nan" or
      "inf"), and `parameters_not_finite`, names of what that one step made of them.

    Raises:
      InputError: no such file, or one of a stage that cannot be run alone.
      DamageError: not a batch that was saved.
    """
    name, step, batch = read_batch(path)
    stages, networks, mesh = open_stages(workdir, config)
    if name not in stages:
        raise InputError(
            f"a batch of stage {name} cannot be run again",
            where=path,
            expected=", ".join(stages),
            found=name,
        )
    return {
        "stage": name,
        "step": step,
        **_step(workdir, config, stages[name], networks, mesh, step, batch),
    }


def _step(
    workdir: str,
    config: ConfigDict,
    stage: Any,
    networks: Parameters,
    mesh: Mesh,
    step: int,
    batch: Any,
) -> dict[str, Any]:
    optimizer = make_optimizer(config.optimizer, stage.settings)
    given = {network: networks[network] for network in stage.modules.names}
    state = make_state(stage.modules, optimizer, mesh, config.seed, given)
    kept = Checkpoints(
        RunDir(workdir), stage.name, config.checkpoint.keep, config_lib.to_json(config), mesh
    )
    restored = kept.restore(state)
    state = state if restored is None else restored[0]
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    at_step = jax.device_put(jax.numpy.asarray(step, state.step.dtype), state.step.sharding)
    parts = config.optimizer.accumulate_steps
    run_step = make_step(stage, optimizer, mesh, places, config.seed, parts)
    checkpoint_step = int(state.step)
    after, metrics = run_step(
        state._replace(step=at_step), jax.device_put(batch, batch_sharding(mesh))
    )
    broken = [
        jax.tree_util.keystr(where)
        for where, leaf in jax.tree_util.tree_leaves_with_path(after.parameters)
        if not bool(jax.numpy.isfinite(leaf).all())
    ]
    figures = {name: float(figure) for name, figure in jax.device_get(metrics).items()}
    return {
        "checkpoint_step": checkpoint_step,
        "figures": {k: v if math.isfinite(v) else str(v) for k, v in sorted(figures.items())},
        "parameters_not_finite": broken,
    }
