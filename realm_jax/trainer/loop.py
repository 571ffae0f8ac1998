"""The one training loop: ICT, reader, REALM and open QA differ by the stage they bring."""

import threading
import time
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.exchange import heartbeat
from realm_jax.exchange.layout import RunDir
from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import own_places, place_rows
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.feed import Feed, InStep
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.publisher import NoPublisher, Publisher
from realm_jax.trainer.report import Report
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step


class Stopped(Exception):
    """The stop signal came; everything up to `step` is saved."""

    def __init__(self, stage: str, step: int):
        super().__init__(f"stopped in stage {stage} at step {step}; the same command goes on there")
        self.stage, self.step = stage, step


def train(
    run: RunDir,
    config: ConfigDict,
    stage: Stage,
    given: Parameters,
    mesh: Mesh,
    stop: threading.Event,
    publisher: Publisher | NoPublisher,
    fields: Callable[[int], dict[str, Any]] = lambda step: {},
) -> Parameters:
    """Runs a stage from its newest checkpoint, or from `given`, to its last step.

    The order within a step is a contract. What looks at the parameters of step n (evaluation,
    checkpoint, snapshot) comes before batch n is taken, so nothing saved is ever one ahead; the
    metrics of step n - 1 are read after step n is dispatched, and before anything is saved.

    Args:
      run: the run folder.
      config: of the run.
      stage: networks, batches, loss, evaluation.
      given: parameters to start from, for some of the stage's networks.
      mesh: where arrays lie.
      stop: when set, the loop saves and raises `Stopped`.
      publisher: of snapshots, on the cadence of `config.refresh.every`.
      fields: JSON fields for the manifest of a checkpoint, by step.

    Returns:
      The parameters after the last step, on the devices.
    """
    steps = stage.settings.steps
    optimizer = make_optimizer(config.optimizer, stage.settings)
    as_json = config_lib.to_json(config)
    checkpoints = Checkpoints(run, stage.name, config.checkpoint.keep, as_json, mesh)
    state = make_state(stage.modules, optimizer, mesh, config.seed, given)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    restored = checkpoints.restore(state)
    state = state if restored is None else restored[0]
    first = int(state.step)
    parts = config.optimizer.accumulate_steps
    step_function = make_step(stage, optimizer, mesh, places, config.seed, parts)
    if first >= steps:
        return state.parameters
    began = time.monotonic()
    report = Report(stage.name, steps, config.report.every, run.logs / f"{stage.name}.jsonl")
    feed = _feed(stage, mesh, first, steps)
    try:
        for step in range(first, steps):
            if _due(step, config.refresh.every):
                report.settle()
                publisher.publish(step, state.parameters)
                if hosts.leads():
                    heartbeat.beat(run, "trainer", stage=stage.name, step=step)
            if step > first and _due(step, stage.settings.evaluate_every):
                report.event(step, **stage.evaluate(state.parameters))
            if step > first and _due(step, config.checkpoint.every):
                report.settle()
                checkpoints.save(state, fields(step))
            stopping = any(hosts.agree(f"{stage.name}/stop", step, stop.is_set()))
            batch = None if stopping else feed.take(step, stop, state.parameters)
            if not all(hosts.agree(f"{stage.name}/batch", step, batch is not None)):
                report.settle()
                checkpoints.save(state, fields(step))
                raise Stopped(stage.name, step)
            with jax.transfer_guard("disallow"):
                state, metrics = step_function(state, batch)
            report.step(step, metrics)
        report.finish()
        publisher.publish(steps, state.parameters)
        publisher.wait()  # a stage whose last checkpoint exists is never asked to publish again
        checkpoints.save(state, fields(steps))
        report.event(steps, **stage.evaluate(state.parameters), seconds=time.monotonic() - began)
    finally:
        report.close()
        feed.close()
    return state.parameters


def _feed(stage: Stage, mesh: Mesh, first: int, last: int) -> Feed | InStep:
    """Each process makes its own rows of every batch, and no other."""
    size = stage.settings.batch
    places = own_places(mesh, size)

    def make(step: int, *parameters: Parameters) -> Any:
        return place_rows(mesh, stage.batch(step, places, *parameters), places, size)

    return Feed(make, first, last) if stage.ahead else InStep(make)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
